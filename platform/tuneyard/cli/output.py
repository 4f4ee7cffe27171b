"""Tables for people and JSON for programs: every command that prints a table takes `-o json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Format, typer.Option("--output", "-o", help="table, or json for programs")]


def print_json(value: Any) -> None:
    """`value` as JSON on stdout; NaN and infinity become null, since JSON has neither."""
    print(json.dumps(_finite(value), indent=2, allow_nan=False))


def print_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """A table on stdout."""
    for line in table_lines(columns, rows):
        print(line)


def table_lines(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line per row under the column names; columns are as wide as what they hold, whatever the terminal's width."""
    cells = [[column.replace("_", " ") for column in columns], *[[_cell(row.get(column)) for column in columns] for row in rows]]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    numeric = [all(isinstance(row.get(column), (int, float)) or row.get(column) is None for row in rows) for column in columns]
    lines = []
    for line in cells:
        padded = [f"{cell:>{width}}" if right else f"{cell:<{width}}" for cell, width, right in zip(line, widths, numeric, strict=True)]
        lines.append("  ".join(padded).rstrip())
    return lines


def size_text(size_bytes: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))) else value
