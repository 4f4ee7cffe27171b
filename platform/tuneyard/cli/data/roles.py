"""`--columns prompt=question,completion=reply`: the role of each column."""

from __future__ import annotations

from typing import Annotated

import typer

from tuneyard.api import BadInput

ColumnsOption = Annotated[
    str | None, typer.Option(metavar="ROLE=COLUMN,…", help="which column plays which part, such as prompt=question,completion=reply")
]


def roles_of(columns: str | None) -> dict[str, str]:
    """`prompt=question,completion=reply` -> role -> column. Raises BadInput."""
    pairs = [entry.partition("=") for entry in (columns or "").split(",") if entry]
    if any(not role.strip() or not column.strip() for role, _, column in pairs):
        raise BadInput(f"--columns {columns} is not ROLE=COLUMN,…", "write it like --columns prompt=question,completion=reply")
    return {role.strip(): column.strip() for role, _, column in pairs}


def say_columns(command: str) -> str:
    """The next step where the format is not clear from the columns. `command`: the command line before `--columns`."""
    return f"say which column plays which part: {command} --columns prompt=…,completion=…"
