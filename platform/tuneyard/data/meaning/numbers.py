"""Numbers that stand for text. A column of floats that holds whole numbers and nulls is a column of whole numbers: pandas writes it so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuneyard.data.meaning.paths import value_at

_EXACT = 2.0**53
"""Below it, each whole number is a float of its own."""


def is_number(value: Any) -> bool:
    """Whether a value is a number. NaN is not: pandas writes it for a missing value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def whole_number_columns(rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> frozenset[str]:
    """Columns whose values are whole floats, and null in at least one row."""
    found = set()
    for column in columns:
        values = [value_at(row, column) for row in rows]
        numbers = [value for value in values if value is not None and value == value]
        if len(numbers) < len(values) and may_be_whole(numbers):
            found.add(column)
    return frozenset(found)


def may_be_whole(numbers: Sequence[Any]) -> bool:
    """Whether all of these are whole floats."""
    return bool(numbers) and all(isinstance(value, float) and value.is_integer() and abs(value) < _EXACT for value in numbers)


def number_text(value: float, *, whole: bool) -> str:
    """A number as text. `whole`: a whole number has no decimal point. Raises ValueError for infinity."""
    if value in (math.inf, -math.inf):
        raise ValueError(f"{value}, no number that can be written down")
    return str(int(value)) if whole and isinstance(value, float) and value.is_integer() else str(value)
