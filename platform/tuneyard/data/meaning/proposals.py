"""What rows probably mean where their columns do not say it: a column of labels, and who is who in a chat. `tuneyard init` proposes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tuneyard.data.bad_sample import BadSample
from tuneyard.data.meaning.numbers import is_number
from tuneyard.data.meaning.role_names import NAMES, is_filled
from tuneyard.data.messages import looks_like_dialogue, message_list, unpacked
from tuneyard.data.notations.speakers import ROLES
from tuneyard.data.notations.turns import plain_turns
from tuneyard.data.records import Record, read_records
from tuneyard.data.sources import locate

FIRST_ROWS = 2000
_MOST_LABELS, _LONGEST_LABEL, _ROWS_OF_A_LABEL = 20, 40, 2
"""Different labels at most, their characters, and rows for each of them at least: more, longer or rarer values are texts."""
_LABEL_NAMES = ("label", "labels", "category", "class", "intent", "sentiment", "topic", "tag", "rating")
_ASKS = ("customer", "client", "caller", "visitor", "guest", "patient", "student", "buyer", "player", "q", "question")
_ANSWERS = ("agent", "support", "operator", "clerk", "advisor", "doctor", "teacher", "seller", "expert", "a", "answer")
"""Speakers whose names say their side: an agent often greets before the customer asks."""
_IN_OTHER_LANGUAGES = {
    "prompt": (
        "frage",
        "anfrage",
        "eingabe",
        "pregunta",
        "consulta",
        "domanda",
        "pergunta",
        "vraag",
        "fråga",
        "pytanie",
        "вопрос",
        "質問",
        "问题",
    ),
    "completion": (
        "antwort",
        "ausgabe",
        "respuesta",
        "réponse",
        "reponse",
        "risposta",
        "resposta",
        "antwoord",
        "svar",
        "odpowiedź",
        "ответ",
        "回答",
    ),
}
"""Names of columns in other languages than English, by role."""
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Labels:
    """A column of texts, and one that holds a label for each."""

    text: str
    label: str
    values: tuple[str, ...]
    """The labels, the most frequent first."""


def first_rows(uri: str, *, sheet: str | None = None) -> list[Mapping[str, Any]]:
    """The first readable rows of a data set. Raises BadInput."""
    rows = islice(read_records(locate(uri, sheet=sheet).files), FIRST_ROWS)
    return [row.values for row in rows if isinstance(row, Record)]


def proposed_labels(rows: Rows) -> Labels | None:
    """The columns of texts and of labels; None where they are not clear: more than one column could be either."""
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: [row[name] for row in rows if is_filled(row.get(name))] for name in names}
    labels = {name: found for name, each in values.items() if (found := _labels(each, len(rows)))}
    texts = [name for name, each in values.items() if name not in labels and each and all(isinstance(value, str) for value in each)]
    texts = _named(texts, NAMES["text"]) if len(texts) > 1 else texts
    chosen = _named(list(labels), _LABEL_NAMES) if len(labels) > 1 else list(labels)
    if len(texts) != 1 or len(chosen) != 1:
        return None
    [text], [label] = texts, chosen
    if len(set(values[text])) <= len(labels[label]):
        return None
    return Labels(text, label, labels[label])


def _labels(values: Sequence[Any], rows: int) -> tuple[str, ...]:
    """The different values, if these are a small set of short ones that nearly all rows have; none otherwise."""
    if len(values) * 10 < rows * 9 or not all(isinstance(value, str) or is_number(value) for value in values):
        return ()
    counts = Counter(str(value) for value in values)
    few = 2 <= len(counts) <= _MOST_LABELS and len(counts) * _ROWS_OF_A_LABEL <= len(values)
    return tuple(value for value, _ in counts.most_common()) if few and max(map(len, counts)) <= _LONGEST_LABEL else ()


def _named(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    return [column for column in columns if column.lower() in names]


def proposed_pairs(rows: Rows) -> dict[str, str]:
    """Role -> column of prompts and completions whose names are those of another language; empty where either is not clear."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    taken = {role: _named(names, (*words, *NAMES[role])) for role, words in _IN_OTHER_LANGUAGES.items()}
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
