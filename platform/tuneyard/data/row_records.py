"""A row of a file with its place, and a row that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    place: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BadRow:
    """`count` rows that cannot be read: one row, or a whole row group of a damaged Parquet file."""

    place: str
    reason: str
    count: int = 1
    advice: str = ""
    """The remedy, where it is not to repair the row."""
