"""What rows probably mean where their columns do not say it: columns of labels, of prompts, and who is who in a chat. `tuneyard init`
proposes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tuneyard.data.bad_sample import BadSample
from tuneyard.data.meaning.numbers import is_number
from tuneyard.data.meaning.role_names import NAMES, is_filled, role_named
from tuneyard.data.messages import looks_like_dialogue, message_list, unpacked
from tuneyard.data.notations.speakers import ROLES
from tuneyard.data.notations.turns import plain_turns
from tuneyard.data.records import Record, read_records
from tuneyard.data.sources import locate

FIRST_ROWS = 2000
_LONGEST_LABEL, _ROWS_OF_A_LABEL = 40, 2
"""Characters of a label at most, and rows for each at least: longer or rarer values are texts."""
_MOST_LISTED, _ROWS_OF_MANY = 20, 3
"""Labels that a prompt lists at most, and rows for each of more labels at least."""
LABEL_NAMES = ("label", "labels", "category", "class", "intent", "sentiment", "topic", "tag", "rating", "kategorie", "queue", "team")
_ASKS = ("customer", "client", "caller", "visitor", "guest", "patient", "student", "buyer", "player", "q", "question")
_ANSWERS = ("agent", "support", "operator", "clerk", "advisor", "doctor", "teacher", "seller", "expert", "a", "answer")
"""Speakers whose names say their side: an agent often greets before the customer asks."""
IN_OTHER_LANGUAGES: dict[str, dict[str, tuple[str, ...]]] = {
    "German": {"prompt": ("frage", "anfrage", "eingabe", "nachricht", "betreff"), "completion": ("antwort", "ausgabe")},
    "Spanish": {"prompt": ("pregunta", "consulta", "mensaje", "asunto"), "completion": ("respuesta",)},
    "French": {"prompt": ("demande", "message", "objet"), "completion": ("réponse", "reponse")},
    "Italian": {"prompt": ("domanda", "messaggio", "oggetto"), "completion": ("risposta",)},
    "Portuguese": {"prompt": ("pergunta", "mensagem", "assunto"), "completion": ("resposta",)},
    "Dutch": {"prompt": ("vraag", "bericht", "onderwerp"), "completion": ("antwoord",)},
    "Swedish": {"prompt": ("fråga", "meddelande", "ämne"), "completion": ("svar",)},
    "Polish": {"prompt": ("pytanie", "wiadomość", "temat"), "completion": ("odpowiedź",)},
    "Russian": {"prompt": ("вопрос", "сообщение", "тема"), "completion": ("ответ",)},
    "Japanese": {"prompt": ("質問",), "completion": ("回答",)},
    "Chinese": {"prompt": ("问题", "消息", "主题"), "completion": ("回答", "答案")},
}
"""Names of columns in other languages than English, by role. `docs/reference/forms.md` lists them."""
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Labels:
    """Columns of texts, and one that holds a label for them."""

    texts: tuple[str, ...]
    label: str
    values: tuple[str, ...]
    """The labels, the most frequent first."""

    @property
    def listed(self) -> tuple[str, ...]:
        """The labels that a prompt can list: all, or none where they are many."""
        return self.values if len(self.values) <= _MOST_LISTED else ()


def first_rows(uri: str, *, sheet: str | None = None) -> list[Mapping[str, Any]]:
    """The first readable rows of a data set. Raises BadInput."""
    rows = islice(read_records(locate(uri, sheet=sheet).files), FIRST_ROWS)
    return [row.values for row in rows if isinstance(row, Record)]


def proposed_labels(rows: Rows) -> Labels | None:
    """The columns of texts and of labels; None where they are not clear: more than one column could be the label, or several columns hold
    texts and the label has none of the usual names.
    """
    values = _values(rows)
    labels = {name: found for name, each in values.items() if (found := _labels(name, each, len(rows)))}
    chosen = _named(list(labels), LABEL_NAMES) if len(labels) > 1 else list(labels)
    if len(chosen) != 1:
        return None
    [label] = chosen
    texts = [name for name in _texts(values, rows) if name not in labels]
    if len(texts) > 1 and label.lower() not in LABEL_NAMES:
        texts = _named(texts, NAMES["text"])[:1]
    if not texts or max(len(set(values[text])) for text in texts) <= len(labels[label]):
        return None
    return Labels(tuple(texts), label, labels[label])


def proposed_answers(rows: Rows) -> tuple[tuple[str, ...], str] | None:
    """The columns of text of a prompt, and the only column whose name is that of an answer; None where there is none, or where a column is
    named for a prompt or a chat.
    """
    values = _values(rows)
    answers = _named(list(values), (*NAMES["completion"], *_words("completion")))
    texts = [name for name in _texts(values, rows) if name not in answers]
    others = any(role_named(name) in ("messages", "prompt", "chosen", "rejected") for name in values)
    nested = any(isinstance(value, (dict, list)) for each in values.values() for value in each)
    if len(answers) != 1 or not texts or others or nested:
        return None
    labels = _labels(answers[0], values[answers[0]], len(rows))
    return None if labels and len(texts) == 1 else (tuple(texts), answers[0])


def _values(rows: Rows) -> dict[str, list[Any]]:
    """Column -> its values that are not empty."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row[name] for row in rows if is_filled(row.get(name))] for name in names}


def _texts(values: Mapping[str, Sequence[Any]], rows: Rows) -> list[str]:
    """The columns that a prompt can have: texts in all rows, and neither numbers, dates nor identifiers."""
    return [name for name, each in values.items() if _are_texts(each) and all(row.get(name) is not None for row in rows)]


def _are_texts(values: Sequence[Any]) -> bool:
    if not values or not all(isinstance(value, str) for value in values):
        return False
    signs = "".join("".join(value.split()) for value in values)
    words = any(not value.isascii() or len(value.split()) > 1 for value in values)
    return sum(map(str.isalpha, signs)) * 2 > len(signs) and (words or len(set(values)) * 2 <= len(values))


def _labels(name: str, values: Sequence[Any], rows: int) -> tuple[str, ...]:
    """The different values, if these are short ones that repeat and that nearly all rows have; none otherwise. More than _MOST_LISTED are
    labels only under a usual name.
    """
    if len(values) * 10 < rows * 9 or not all(isinstance(value, str) or is_number(value) for value in values):
        return ()
    counts = Counter(str(value) for value in values)
    repeat = len(counts) * (_ROWS_OF_A_LABEL if len(counts) <= _MOST_LISTED else _ROWS_OF_MANY) <= len(values)
    known = len(counts) <= _MOST_LISTED or name.lower() in LABEL_NAMES
    fits = len(counts) >= 2 and repeat and known and max(map(len, counts)) <= _LONGEST_LABEL
    return tuple(value for value, _ in counts.most_common()) if fits else ()


def _words(role: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for language in IN_OTHER_LANGUAGES.values() for word in language[role]))


def _named(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    return [column for column in columns if column.lower() in names]


def proposed_pairs(rows: Rows) -> dict[str, str]:
    """Role -> column of prompts and completions whose names are those of another language; empty where either is not clear."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    taken = {role: _named(names, (*_words(role), *NAMES[role])) for role in ("prompt", "completion")}
    return {role: columns[0] for role, columns in taken.items()} if all(len(columns) == 1 for columns in taken.values()) else {}


def speakers_in(rows: Rows) -> list[str]:
    """Who speaks in chats, as they are written but in lower case; empty where no column of its own holds a chat."""
    found: dict[str, None] = {}
    for row in rows:
        for value in filter(looks_like_dialogue, row.values()):
            with suppress(BadSample):
                said = [turn.get("role") for item in unpacked(value) for turn in plain_turns(item, "")]
                found.update(dict.fromkeys(name.strip().lower() for name in said if isinstance(name, str)))
    return list(found)


def proposed_speakers(rows: Rows) -> dict[str, str]:
    """Speaker -> role, for chats of two sides with names that are not known. Names tell who asks, else the side that begins most chats.

    Empty where all names are known, or more than two sides speak.
    """
    first, sides = Counter[str](), dict[str, None]()
    for row in rows:
        value = next((value for value in row.values() if looks_like_dialogue(value)), None)
        with suppress(BadSample):
            turns = message_list(value, "") if value is not None else []
            said = [turn["role"] for turn in turns if turn["role"] not in ("system", "developer", "tool")]
            sides.update(dict.fromkeys(said))
            first.update(said[:1])
    strange = [name for name in sides if name not in ROLES]
    if not strange or len(sides) != 2:
        return {}
    asks = _who_asks(list(sides)) or first.most_common(1)[0][0]
    return {name: "user" if name == asks else "assistant" for name in strange}


def _who_asks(sides: Sequence[str]) -> str:
    """The side that asks, by the names of both; empty where these do not say it."""
    for name, other in (sides, sides[::-1]):
        if name == "user" or other == "assistant" or name.lower() in _ASKS or other.lower() in _ANSWERS:
            return name
    return ""
