"""Tables for people and JSON for programs: every command that prints a table takes `-o json`."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from tuneyard.api.quantities import bytes_text
from tuneyard.data.visible import visible

size_text = bytes_text
"""Bytes for people."""


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Format, typer.Option("--output", "-o", help="table, or json for programs")]


def print_json(value: Any) -> None:
    """`value` as JSON on stdout; NaN and infinity become null, since JSON has neither."""
    print(json.dumps(_finite(value), indent=2, allow_nan=False))


def print_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], right: Collection[str] = ()) -> None:
    """A table on stdout."""
    for line in table_lines(columns, rows, right):
        print(line)


def table_lines(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], right: Collection[str] = ()) -> list[str]:
    """One line per row below the column names. Columns are as wide as their cells, on every terminal. Numbers, and the columns named in
    `right`, are aligned to the right."""
    cells = [[column.replace("_", " ") for column in columns], *[[_cell(row.get(column)) for column in columns] for row in rows]]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    numeric = [
        column in right or all(isinstance(row.get(column), (int, float)) or row.get(column) is None for row in rows) for column in columns
    ]
    lines = []
    for line in cells:
        placed = zip(line, widths, numeric, strict=True)
        padded = [f"{cell:>{width}}" if at_right else f"{cell:<{width}}" for cell, width, at_right in placed]
        lines.append("  ".join(padded).rstrip())
    return lines


def duration_text(seconds: float) -> str:
    """Seconds for people: two units at most."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days:,} d {hours} h" if hours else f"{days:,} d"


def rounded_text(value: float, digits: int = 3) -> str:
    """A figure for people: `digits` significant digits, separated thousands, no exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    value = round(value, places)
    return f"{value:,.{max(0, places)}f}"


def figure_text(value: float, digits: int = 4) -> str:
    """A figure or a count for people: whole numbers in full, others as `rounded_text`."""
    return f"{value:,.0f}" if math.isfinite(value) and float(value).is_integer() else rounded_text(value, digits)


def figures_text(values: Sequence[float], digits: int = 4) -> list[str]:
    """Figures that stand side by side: whole numbers in full, others with as many decimals as the one that needs most."""
    broken = [value for value in values if math.isfinite(value) and not float(value).is_integer()]
    places = [max(0, digits - 1 - math.floor(math.log10(abs(value)))) for value in broken]
    most = min(max(places, default=0), 12)
    return [f"{value:,.{most}f}" if math.isfinite(value) else f"{value:g}" for value in values]


def money_text(value: float) -> str:
    """An amount of any currency."""
    return rounded_text(value, 2) if 0 < value < 0.1 else f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if 9999.5 <= abs(value) < math.inf else f"{value:.4g}"
    return visible(str(value)).replace("\n", " ")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))) else value
