"""How the rows of a score task are read: as they are, or as their form reads them; and which numbers are whole."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import BadInput, ScoreData
from tuneyard.data.bad_sample import BadSample
from tuneyard.data.canonical import with_input
from tuneyard.data.forms import FORMS, form_of
from tuneyard.data.meaning.numbers import may_be_whole, whole_number_columns
from tuneyard.data.meaning.paths import is_path, value_at, what_is_missing
from tuneyard.data.meaning.unused import found_columns
from tuneyard.data.messages import looks_like_messages, message_list
from tuneyard.data.templated import columns_of_places, uses_prompt

FIRST_ROWS = 100
"""Rows by which the columns, the form and whole numbers are found, as in training."""
COLUMNS = ("prompt", "input", "system", "tools")
"""Roles of data.columns that a score task uses."""
Row = Mapping[str, Any]


def prompt_column(data: ScoreData) -> str:
    """The column or path of prompts: data.columns.prompt, unless data.prompt is given."""
    return data.prompt if "prompt" in data.model_fields_set else data.columns.get("prompt", data.prompt)


@dataclass(frozen=True)
class ScoreShape:
    """`form`: its name; empty where columns are used as they are. `whole`: columns whose whole numbers have no decimal point.

    `undecided`: a null further on would make a column one of these.
    """

    form: str = ""
    whole: frozenset[str] = frozenset()
    undecided: bool = False
    places: Mapping[str, str] = field(default_factory=dict)
    """Place of data.template -> column."""

    def shaped(self, row: Row) -> dict[str, Any]:
        """The row, with the columns `prompt` and `completion` of its form beside its own. Raises BadSample."""
        return dict(row) if not self.form else {**row, **_of_form(self.form, row)}

    def notes(self) -> list[str]:
        """What a user must know about the reading of the rows."""
        return [f"rows have the form {self.form}, which gives them the columns prompt and completion"] if self.form else []


NO_SHAPE = ScoreShape()


def _of_form(name: str, row: Row) -> dict[str, Any]:
    """The columns of a form. Of a chat, `prompt` is the turns before the last answer, and `completion` is that answer."""
    read = {role: value for role, value in FORMS[name].shaped(row).items() if value is not None}
    if "input" in read and isinstance(read.get("prompt"), str):
        read["prompt"] = with_input(read["prompt"], read.pop("input"))
    if "messages" not in read:
        if looks_like_messages(read.get("completion")):
            read["completion"] = message_list(read["completion"], "completion")[-1]["content"]
        return read
    turns = message_list(read["messages"], "messages")
    last = len(turns) - 1 if turns[-1]["role"] == "assistant" else len(turns)
    return {**read, "prompt": turns[:last], "completion": turns[last]["content"] if last < len(turns) else None}


def shape_of(data: ScoreData, uri: str, rows: Sequence[Row]) -> ScoreShape:
    """The shape of rows. A form is used where a column that `data` names is none of the rows' own.

    Raises BadInput for a column that neither the rows nor their form have.
    """
    if others := [role for role in data.columns if role not in COLUMNS]:
        cause = f"{uri}: data.columns: {others[0]} has no part in a score task"
        raise BadInput(cause, f"parts are {', '.join(COLUMNS)}; the expected answer is data.reference")
    asked = prompt_column(data) if uses_prompt(data.template) else None
    wanted = {"prompt": asked, "reference": data.reference, "answer": data.answer}
    named = {field: column for field, column in wanted.items() if column is not None}
    lacking = [column for column in named.values() if not _has(rows, column)]
    form = form_of(rows) if lacking else None
    shape = ScoreShape(form.name) if form is not None and form.refusal is None else NO_SHAPE
    fitting = list(_shaped(shape, rows))
    named |= {f"keep[{i}]": name for i, name in enumerate(data.keep)}
    named |= {f"columns.{role}": column for role, column in data.columns.items()}
    for name, column in named.items():
        if rows and not _has(fitting, column):
            raise _missing(uri, name, column, fitting or rows)
    places = _places(data, fitting, uri) if data.template is not None and fitting else {}
    values = [column for column in (data.reference, data.answer, *places.values()) if column is not None]
    whole = whole_number_columns(fitting, values)
    undecided = any(column not in whole and may_be_whole([value_at(row, column) for row in fitting]) for column in values)
    return ScoreShape(shape.form, whole, undecided, places)


def _places(data: ScoreData, rows: Sequence[Row], uri: str) -> dict[str, str]:
    """The columns of data.template's places, as in training."""
    assert data.template is not None
    roles = {"prompt": prompt_column(data)}
    given = data.columns.get("input") or next((name for name in rows[0] if name.lower() == "input"), None)
    if given and (roles["prompt"].lower() == "instruction" or "input" in data.columns):
        roles["input"] = given
    return columns_of_places(data.template, rows, roles, uri)


def _shaped(shape: ScoreShape, rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The rows that can be read; others are told when they are scored."""
    for row in rows:
        with suppress(BadSample):
            yield shape.shaped(row)


def _has(rows: Sequence[Row], column: str) -> bool:
    return any(column in row for row in rows) or (is_path(column) and any(value_at(row, column) is not None for row in rows))


def _missing(uri: str, field: str, column: str, rows: Sequence[Row]) -> BadInput:
    found = list(dict.fromkeys(name for row in rows for name in row))
    near = difflib.get_close_matches(column, found, n=1)
    if is_path(column):
        return BadInput(
            f"{uri}: {what_is_missing(rows[0], column)} (data.{field}); columns found: {found_columns(rows)}", "correct the path"
        )
    return BadInput(
        f"{uri}: no column {column} (data.{field}); columns found: {', '.join(found[:100]) or 'none'}",
        f"did you mean {near[0]}?" if near else f"set data.{field.partition('[')[0]} to one of them",
    )
