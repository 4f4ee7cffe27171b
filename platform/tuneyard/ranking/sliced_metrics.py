"""Figures of all rows, and of the rows that share a value of a column.

A slice is exact: it has all rows with its value, and each row is in one slice per column. Values without their own slice share the slice
`OTHER`. If the values are named in advance, sums may be merged in any order. Otherwise each column keeps the values that it meets, up to a
limit. Beyond the limit a column is closed: from then on, further values are in `OTHER`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tuneyard.ranking.metrics import JudgedRows, RankFigures, RankMetrics

Value = str | None
"""A value of a column as text; None for null."""
MISSING, OTHER = "(missing)", "(other)"
"""Name of the slice of nulls, and of the slice of all values without their own slice."""
SLICE_BINS = 1 << 12
"""64 KiB a slice. Logits in a bin differ by 0.01 at most, inside of the reach of 20."""
MOST_VALUES = 32
_TRACKED = 8
"""Values that a column keeps during counting, per value that is shown."""


class Coded(NamedTuple):
    """A column of a batch: for each row, the index of its value in `values`."""

    codes: npt.NDArray[Any]
    values: Sequence[Value]


@dataclass(frozen=True)
class SlicedFigures:
    """`slices`: column -> value -> figures, the most frequent value first, `(other)` last. `partial`: closed columns."""

    whole: RankFigures
    slices: dict[str, dict[str, RankFigures]]
    partial: tuple[str, ...] = ()


class _Column:
    """The slices of one column."""

    def __init__(self, most: int, values: Sequence[Value] | None) -> None:
        self.most, self.closed = most, values is not None
        self.slices: dict[Value, RankMetrics] = {value: RankMetrics(SLICE_BINS) for value in values or ()}
        self.other = RankMetrics(SLICE_BINS)

    def add(self, judged: JudgedRows, column: Coded) -> None:
        for code, rows in judged.groups(judged.of_counted(np.asarray(column.codes))):
            self._slice(column.values[code]).add(rows)

    def _slice(self, value: Value) -> RankMetrics:
        found = self.slices.get(value)
        if found is not None:
            return found
        if not self.closed and len(self.slices) < self.most * _TRACKED:
            return self.slices.setdefault(value, RankMetrics(SLICE_BINS))
        self.closed = True
        return self.other

    def merge(self, other: _Column) -> _Column:
        made = _Column(self.most, None)
        made.closed = self.closed or other.closed
        made.other = self.other.merge(other.other)
        for value in {**self.slices, **other.slices}:
            both = [column.slices[value] for column in (self, other) if value in column.slices]
            merged = both[0].merge(both[1] if len(both) == 2 else RankMetrics(SLICE_BINS))
            if any(column.closed and value not in column.slices for column in (self, other)):  # that column has rows of it in `other`
                made.other = made.other.merge(merged)
            else:
                made.slices[value] = merged
        for value in self._by_rows(made.slices)[made.most * _TRACKED :]:
            made.closed = True
            made.other = made.other.merge(made.slices.pop(value))
        return made

    @staticmethod
    def _by_rows(slices: Mapping[Value, RankMetrics]) -> list[Value]:
        """Values, the most frequent first; ties in the order of their texts."""
        return sorted(slices, key=lambda value: (-slices[value].rows, value is None, value or ""))

    def figures(self) -> Iterator[tuple[str, RankFigures]]:
        ordered = self._by_rows(self.slices)
        rest = self.other
        for value in ordered[self.most :]:
            rest = rest.merge(self.slices[value])
        for value in ordered[: self.most]:
            if self.slices[value].rows:
                yield name_of(value), self.slices[value].figures()
        if rest.rows:
            yield OTHER, rest.figures()


class SlicedMetrics:
    """Sums of all rows, and of each value of some columns: bounded in memory, mergeable, JSON."""

    def __init__(
        self, columns: Sequence[str] = (), *, most_values: int = MOST_VALUES, values: Mapping[str, Sequence[Value]] | None = None
    ) -> None:
        """`most_values`: shown values per column, the most frequent ones. `values`: per column, the only values with their own slice."""
        self.whole = RankMetrics()
        self._most = most_values
        self._columns = {name: _Column(most_values, None if values is None else values[name]) for name in columns}

    def update(self, logits: npt.NDArray[Any], labels: npt.NDArray[Any], columns: Mapping[str, Coded] | None = None) -> None:
        """Count rows: `logits`, `labels` (0 or 1) and the columns' values, one per row. Raises KeyError for a missing column."""
        self.add(JudgedRows.of(logits, labels), columns or {})

    def add(self, judged: JudgedRows, columns: Mapping[str, Coded]) -> None:
        """Count rows with known loss."""
        self.whole.add(judged)
        for name, column in self._columns.items():
            column.add(judged, columns[name])

    def merge(self, other: SlicedMetrics) -> SlicedMetrics:
        """The sums of both. Raises ValueError if their columns differ."""
        if list(self._columns) != list(other._columns):
            raise ValueError(f"sums by {', '.join(self._columns)} and by {', '.join(other._columns)} do not add up")
        made = SlicedMetrics(most_values=self._most)
        made.whole = self.whole.merge(other.whole)
        made._columns = {name: column.merge(other._columns[name]) for name, column in self._columns.items()}
        return made

    def figures(self) -> SlicedFigures:
        """The figures. Raises ValueError if no row was counted."""
        slices = {name: dict(column.figures()) for name, column in self._columns.items()}
        return SlicedFigures(self.whole.figures(), slices, tuple(name for name, column in self._columns.items() if column.closed))

    def to_dict(self) -> dict[str, Any]:
        """The sums for JSON. Slices without rows are left out, except for their values."""
        columns = {
            name: {
                "closed": column.closed,
                "other": column.other.to_dict(),
                "slices": [[value, sums.to_dict() if sums.rows else None] for value, sums in column.slices.items()],
            }
            for name, column in self._columns.items()
        }
        return {"most": self._most, "whole": self.whole.to_dict(), "columns": columns}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SlicedMetrics:
        """The sums from `to_dict`. Raises KeyError for other values."""
        made = cls(most_values=values["most"])
        made.whole = RankMetrics.from_dict(values["whole"])
        for name, each in values["columns"].items():
            column = made._columns[name] = _Column(made._most, None)
            column.closed, column.other = each["closed"], RankMetrics.from_dict(each["other"])
            column.slices = {
                value: RankMetrics(SLICE_BINS) if sums is None else RankMetrics.from_dict(sums) for value, sums in each["slices"]
            }
        return made


def name_of(value: Value) -> str:
    """The name of a value in reports. A text that equals the name of another slice is quoted."""
    if value is None:
        return MISSING
    return repr(value) if value in (MISSING, OTHER) else value


def coded(column: Any) -> Coded:
    """Codes of an Arrow column without nested values."""
    import pyarrow as pa

    chunked = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    found = chunked if pa.types.is_dictionary(chunked.type) else chunked.dictionary_encode()
    texts: list[Value] = [None if value is None else str(value) for value in found.dictionary.to_pylist()]
    codes = found.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
    return Coded(codes.astype(np.int64), [*texts, None])
