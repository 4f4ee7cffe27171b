"""Calls with what came in and what went out: LangSmith, Langfuse, Braintrust, MLflow, promptfoo, Phoenix, logs of proxies.

Each side is a text, a message, a list of messages, an answer of an API, or an object with one of these.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from tuneyard.data.forms.form import Form, Row, by_paths
from tuneyard.data.meaning.paths import structured, value_at
from tuneyard.data.meaning.role_names import NAMES
from tuneyard.data.notations.turns import looks_like_turn

_ASKED = ("input", "request", "var")
_ANSWERED = ("expectedoutput", "expectedresponse", "expected", "expectation", "referenceoutput", "output", "response")
"""Stems of columns. The expected answer wins over the one that a model gave."""
_AROUND = re.compile(r"^(attributes|main|raw|model|llm|openinference)|(body|json|data|value|payload|object|messages)$")
"""What exporters put around a stem: `attributes.input.value`, `request_body`."""
_OTHERS = ("instruction", "question", "messages")
"""Columns beside which `input` and `output` have another meaning."""
_TURNS = ("messages", "contents", "chat_history")
_INNER_ASKED = (*_TURNS, *NAMES["prompt"], "user_input", "text")
_INNER_ANSWERED = (
    *("choices[0].message", "message", "messages", "generations[0][0].text", "generations[0].text", "output_text"),
    *(*NAMES["completion"], "expected_response", "expected_output", "generation", "text", "content"),
)
_MOST_DEEP = 3
Side = tuple[Any, str]


def _turns(value: Any) -> list[Any] | None:
    value = structured(value)
    if isinstance(value, Mapping) and looks_like_turn(value):
        return [value]
    if isinstance(value, Mapping) and isinstance(value.get("content"), list) and "text" in (value["content"] or [{}])[0]:
        return [{"role": "assistant", "content": value["content"]}]  # the answer of Anthropic's API, without its role
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    return value if isinstance(value, list) and value and all(map(looks_like_turn, value)) else None


def _side(value: Any, names: tuple[str, ...], place: str, depth: int = 0, *, named: bool = False) -> Side | None:
    """A text or a list of turns inside `value`, with its path; None where it is not clear which one is meant. `named`: an object is read by
    known names of its parts alone, since it may be the answer itself.
    """
    value = structured(value)
    if isinstance(value, str):
        return (value, place) if value.strip() else None
    if turns := _turns(value):
        return turns, place
    if not isinstance(value, Mapping) or depth == _MOST_DEEP:
        return None
    for name in names:
        inner = value_at(value, name)
        if inner is not None and (found := _side(inner, names, f"{place}.{name}", depth + 1, named=named)):
            return found
    if len(value) == 1:
        [(name, each)] = value.items()
        return None if named and isinstance(each, str) else _side(each, names, f"{place}.{name}", depth + 1, named=named)
    said = [name for name, each in value.items() if isinstance(each, str) and each.strip()]
    return (value[said[0]], f"{place}.{said[0]}") if len(said) == 1 and not named else None


def _sides(row: Row) -> tuple[Side, Side] | None:
    """What was asked and answered. Rows of plain texts under usual names are no traces."""
    asked = next(_found(row, _ASKED, _INNER_ASKED), None)
    answered = next(_found(row, _ANSWERED, _INNER_ANSWERED), None)
    if asked is None or answered is None or any(row.get(name) and name not in (asked[1], answered[1]) for name in _OTHERS):
        return None
    usual = all(path in (*NAMES["prompt"], *NAMES["completion"]) for _, path in (asked, answered))
    return None if usual and not isinstance(structured(row[answered[1]]), Mapping) else (asked, answered)


def _found(row: Row, stems: tuple[str, ...], names: tuple[str, ...]) -> Iterator[Side]:
    columns = defaultdict[str, list[str]](list)
    for column in row:
        columns[_stem(str(column))].append(column)
    for column in (column for stem in stems for column in columns.get(stem, ())):
        if found := _side(row[column], names, str(column), named=column in NAMES["completion"]):
            yield found


@lru_cache(maxsize=1 << 18)  # the columns of all rows are the same, and may be many
def _stem(column: str) -> str:
    """`attributes.input.value` -> `input`."""
    name, before = re.sub(r"[^a-z]", "", column.lower()), ""
    while name != before:
        name, before = _AROUND.sub("", name), name
    return name.removesuffix("s")


def _read(row: Row) -> dict[str, Any]:
    sides = _sides(row)
    assert sides is not None  # `fits` has seen both
    (asked, asked_at), (answered, _) = sides
    about = structured(row[_column(row, asked_at)])
    more = {role: about[role] for role in ("system", "tools") if isinstance(about, Mapping) and about.get(role)}
    if isinstance(asked, str) and isinstance(answered, str) and not more:
        return {"prompt": asked, "completion": answered}
    asked = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    answered = [{"role": "assistant", "content": answered}] if isinstance(answered, str) else answered
    if answered[: len(asked)] == asked:  # the whole state of a graph: the answers follow the questions
        answered = answered[len(asked) :]
    return {"prompt": asked, "completion": answered, **more}


def _uses(row: Row) -> list[str]:
    sides = _sides(row)
    if sides is None:
        return []
    column = _column(row, sides[0][1])
    about = structured(row[column])
    more = [f"{column}.{role}" for role in ("system", "tools") if isinstance(about, Mapping) and about.get(role)]
    return [sides[0][1], sides[1][1], *more]


def _column(row: Row, path: str) -> str:
    return next(str(column) for column in row if path == column or path.startswith((f"{column}.", f"{column}[")))


FORMS = [
    by_paths(
        "Phoenix spans",
        "prompt-completion",
        {
            "attributes.llm.input_messages": [{"message.role": "user", "message.content": "2+2?"}],
            "attributes.llm.output_messages": [{"message.role": "assistant", "message.content": "4"}],
        },
        prompt="attributes.llm.input_messages",
        completion="attributes.llm.output_messages",
    ),
    Form(
        "inputs and outputs",
        "prompt-completion",
        lambda row: _sides(row) is not None,
        {"inputs": {"question": "2+2?"}, "outputs": {"answer": "4"}},
        _read,
        _uses,
    ),
]
