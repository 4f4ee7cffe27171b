"""Reads any range of a table's rows by number. The last row group is kept in memory, so that consecutive parts decode it once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tuneyard.data.tables import Cursor, Table, TableReader
from tuneyard.data.tables.table import Damaged


@dataclass(frozen=True)
class Piece:
    """Consecutive rows. Where they cannot be read, `columns` is None and `error` is the reason."""

    first: int
    count: int
    columns: pa.RecordBatch | None
    error: str = ""


class RowsByNumber:
    """Rows of a table by number. Only one thread at a time may use it. `columns`: features, as for `TableReader`."""

    def __init__(self, table: Table, columns: Sequence[str]) -> None:
        self._table, self._columns = table, list(columns)
        groups = [(file, group, table.files[file].group_rows[group]) for file, group in table.row_groups]
        self._groups = [(file, group) for file, group, rows in groups if rows]
        self._starts = [0]
        for _, _, rows in groups:
            if rows:
                self._starts.append(self._starts[-1] + rows)
        self._held: tuple[int, pa.RecordBatch | str] | None = None
        self._reader: Iterator[pa.RecordBatch] = iter(())
        self._next = -1
        """The next row group of the reader."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns that are read."""
        return TableReader(self._table, self._columns).schema

    def read(self, start: int, stop: int) -> list[Piece]:
        """Rows [start, stop) in order; damaged row groups become pieces with an error.

        Raises BadInput where a file has changed, StorageError where the source is not reachable.
        """
        pieces = []
        for number in range(bisect_right(self._starts, start) - 1, len(self._groups)):
            first, end = self._starts[number], self._starts[number + 1]
            if first >= stop:
                break
            low, high = max(start, first), min(stop, end)
            found = self._group(number)
            columns = None if isinstance(found, str) else found.slice(low - first, high - low)
            pieces.append(Piece(low, high - low, columns, found if isinstance(found, str) else ""))
        return pieces

    def sample(self, rows: int) -> list[tuple[int, int]]:
        """Ranges of whole row groups, evenly spaced, with about `rows` rows in total; at least one row group."""
        every = max(1, -(-self._starts[-1] // max(1, rows)))
        return [(self._starts[number], self._starts[number + 1]) for number in range(0, len(self._groups), every)]

    def _group(self, number: int) -> pa.RecordBatch | str:
        """The rows of a row group, or the reason why they cannot be read."""
        if self._held is None or self._held[0] != number:
            self._held = None  # two row groups are never in memory together
            self._held = number, self._decoded(number)
        return self._held[1]

    def _decoded(self, number: int) -> pa.RecordBatch | str:
        if number != self._next:
            file, group = self._groups[number]
            self._reader = iter(TableReader(self._table, self._columns, start=Cursor(file, group, 0, self._table.identity)))
        try:
            found = next(self._reader)
        except Damaged as error:
            self._next = -1
            return error.cause
        self._next = number + 1
        return found
