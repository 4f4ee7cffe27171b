"""Calls with what came in and what went out: LangSmith, Langfuse, Braintrust, MLflow, promptfoo, Phoenix, logs of proxies.

Each side is a text, a message, a list of messages, an answer of an API, or an object with one of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuneyard.data.forms.form import Form, Row, by_paths
from tuneyard.data.forms.turns import looks_like_turn
from tuneyard.data.paths import structured, value_at
from tuneyard.data.role_names import NAMES

_ASKED = ("inputs", "input", "request", "vars")
_ANSWERED = (
    *("expected_output", "expectedOutput", "expected", "expectations", "reference_outputs", "reference_output"),
    *("outputs", "output", "response"),
)
"""The expected answer wins over the one that a model gave."""
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
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    return value if isinstance(value, list) and value and all(map(looks_like_turn, value)) else None


def _side(value: Any, names: tuple[str, ...], place: str, depth: int = 0) -> Side | None:
    """A text or a list of turns inside `value`, with its path; None where it is not clear which one is meant."""
    value = structured(value)
    if isinstance(value, str):
        return (value, place) if value.strip() else None
    if turns := _turns(value):
        return turns, place
    if not isinstance(value, Mapping) or depth == _MOST_DEEP:
        return None
    for name in names:
        inner = value_at(value, name)
        if inner is not None and (found := _side(inner, names, f"{place}.{name}", depth + 1)):
            return found
    said = [name for name, each in value.items() if isinstance(each, str) and each.strip()]
    return (value[said[0]], f"{place}.{said[0]}") if len(said) == 1 else None


def _sides(row: Row) -> tuple[Side, Side] | None:
    """What was asked and answered. Rows of plain texts under usual names are no traces."""
    asked = next(_found(row, _ASKED, _INNER_ASKED), None)
    answered = next(_found(row, _ANSWERED, _INNER_ANSWERED), None)
    if asked is None or answered is None:
        return None
    usual = all(path in (*NAMES["prompt"], *NAMES["completion"]) for _, path in (asked, answered))
    return None if usual and not isinstance(structured(row[answered[1]]), Mapping) else (asked, answered)


def _found(row: Row, columns: tuple[str, ...], names: tuple[str, ...]) -> Iterator[Side]:
    for column in columns:
        if column in row and (found := _side(row[column], names, column)):
            yield found


def _read(row: Row) -> dict[str, Any]:
    sides = _sides(row)
    assert sides is not None  # `fits` has seen both
    (asked, asked_at), (answered, _) = sides
    about = structured(row[asked_at.partition(".")[0]])
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
    column = sides[0][1].partition(".")[0]
    return [sides[0][1], sides[1][1], f"{column}.system", f"{column}.tools"]


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
