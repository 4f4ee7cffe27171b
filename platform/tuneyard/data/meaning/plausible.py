"""Whether the values of a column fit the role that its name suggests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tuneyard.data.bad_sample import BadSample
from tuneyard.data.meaning.numbers import is_number
from tuneyard.data.messages import is_said, looks_like_dialogue, message_list, parts_left_out, unusual_roles

Rows = Sequence[Mapping[str, Any]]


_JUDGEMENTS = {"true": True, "false": False}
_NUMBERS_TOO = _JUDGEMENTS | {"1": True, "0": False, "1.0": True, "0.0": False, "yes": True, "no": False}


def plausible(role: str, rows: Rows, column: str, *, of_pairs: bool = False) -> bool:
    """Whether the column may have the role. `of_pairs`: a label of 0 and 1 judges the answer; beside a chat it may mean anything."""
    values = [row[column] for row in rows if row.get(column) not in (None, "")]
    if not values:
        return role != "messages"
    if role == "messages":
        return any(looks_like_dialogue(value) for value in values)
    if role == "label":  # KTO's labels; others do not judge an answer
        return all(judgement(value, numbers=of_pairs) is not None for value in values)
    if role == "tools":
        return any(isinstance(value, (list, str, Mapping)) for value in values)
    if role == "system":  # whatever it holds: a row whose system turn cannot be read is a bad row
        return True
    may_be_messages = role in ("prompt", "completion", "chosen", "rejected")
    may_be_numbers = role == "completion"
    return any(isinstance(value, str) or (may_be_messages and is_said(value)) or (may_be_numbers and is_number(value)) for value in values)


def judgement(value: Any, *, numbers: bool = False) -> bool | None:
    """A KTO label as true or false; None for any other value. CSV files hold labels as text. `numbers`: 1 and 0, yes and no are labels."""
    return (_NUMBERS_TOO if numbers else _JUDGEMENTS).get(str(value).strip().lower())


def judged(value: Any, column: str) -> bool:
    """Whether a label calls an answer good: true, 1 or yes, or no label. Raises BadSample for a label that is neither true nor false."""
    if value is None or value == "" or value != value:
        return True
    known = judgement(value, numbers=True)
    if known is None:
        raise BadSample(f"{column} is {value!r}, and a label is true or false, or 1 or 0")
    return known


def unused_parts(values: Iterable[Any]) -> tuple[tuple[str, Any], ...]:
    """Parts of the messages of chats that no sample uses, each once with a value."""
    found: dict[str, Any] = {}
    for value in filter(is_said, values):
        with suppress(BadSample):
            found = {**parts_left_out(value), **found}
    return tuple(found.items())


def strangers(values: Iterable[Any], speakers: Mapping[str, str]) -> tuple[str, ...]:
    """Speakers of chats that have no usual role, each once. `speakers`: roles by further names of speakers."""
    found: dict[str, None] = {}
    for value in filter(is_said, values):
        with suppress(BadSample):
            found.update(dict.fromkeys(unusual_roles(message_list(value, "", speakers))))
    return tuple(found)
