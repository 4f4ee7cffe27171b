"""The reader of wide tables: projection, filter, fixed order, batches of N rows, and a cursor.

    locate -> footers -> per row group: plan -> fetch -> decode -> filter -> slices of N rows

Rows are read in the order of files, row groups and rows. Rank r of n reads the row groups r, r + n, r + 2n, … of that order. The cursor
names file, row group and row. A reader that starts at a cursor opens its file, and reads nothing before its row group.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from tuneyard.api import BadInput
from tuneyard.data.tables.access_log import Access
from tuneyard.data.tables.decoding import OpenFile, Segments
from tuneyard.data.tables.features import output_schema
from tuneyard.data.tables.filters import RowFilter, Where, row_filter
from tuneyard.data.tables.ranges import LOCAL, REMOTE, Coalescing, Traffic
from tuneyard.data.tables.rebatching import Cut, Piece, Place, cut, joined
from tuneyard.data.tables.table import Table
from tuneyard.data.tables.unseen_entries import UnseenEntries


@dataclass(frozen=True)
class Cursor:
    """The place of the next row. `row`: counted over rows of the row group that pass the filter. `table`: the identity of the table."""

    file: int = 0
    row_group: int = 0
    row: int = 0
    table: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Cursor:
        """The inverse of `to_dict`. Raises BadInput for other values."""
        try:
            cursor = cls(**values)
        except TypeError as error:
            raise BadInput(f"not a cursor: {error}", "give the result of cursor.to_dict()") from error
        if not all(type(number) is int and number >= 0 for number in (cursor.file, cursor.row_group, cursor.row)):
            raise BadInput(f"not a cursor: {values}", "give the result of cursor.to_dict()")
        return cursor


class TableReader:
    """An iterable over record batches. `cursor`: the place after the last batch. `traffic`: requests and bytes so far.

    `features`: names of columns, or entries of map columns (`float_features[12]`); None: all columns. `batch_rows` None: one batch per row
    group. `row_groups`: the (file, row group) pairs to read, in order; None: all. The constructor raises BadInput for features, filters and
    cursors that do not fit the table. With all row groups, the reader warns of an entry that no row has.
    """

    def __init__(
        self,
        table: Table,
        features: Sequence[str] | None = None,
        *,
        where: Where | None = None,
        batch_rows: int | None = None,
        drop_last: bool = False,
        rank: int = 0,
        ranks: int = 1,
        start: Cursor | None = None,
        coalescing: Coalescing | None = None,
        access_log: Path | str | None = None,
        use_threads: bool = False,
        row_groups: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        if not 0 <= rank < ranks:
            raise BadInput(f"rank {rank} of {ranks}: there is no such rank", "ranks count from 0")
        if batch_rows is not None and batch_rows < 1:
            raise BadInput(f"batch_rows {batch_rows}: a batch has at least one row", "give 1 or more, or None for a batch per row group")
        names = tuple(table.schema.names if features is None else features)
        if not names:
            raise BadInput(f"{table.uri}: the projection names no feature", "name at least one, or leave it out to read all")
        self.table = table
        self.schema = output_schema(names, table.schema, table.uri)
        self.traffic = Traffic()
        self._where = row_filter(where, table.schema, table.uri) if where is not None else None
        self._filter_schema = output_schema(self._where.features, table.schema, table.uri) if self._where else pa.schema([])
        watched = (*self.schema.names, *self._filter_schema.names) if row_groups is None else ()
        self._unseen = UnseenEntries(table.uri, watched, table.schema)
        self._batch_rows = batch_rows
        self._drop_last = drop_last
        self._units = (table.row_groups if row_groups is None else tuple(row_groups))[rank::ranks]
        self._coalescing = coalescing
        self._access_log = Path(access_log) if access_log is not None else None
        self._use_threads = use_threads
        self._place = self._place_of(start) if start is not None else Place(0, 0)
        self._rows_given = 0
        self._logged = (0, 0, 0)

    @property
    def cursor(self) -> Cursor:
        """The place from which a reader with the same table, filter and rank continues."""
        if self._place.unit >= len(self._units):
            return Cursor(len(self.table.files), 0, 0, self.table.identity)
        file, group = self._units[self._place.unit]
        return Cursor(file, group, self._place.row, self.table.identity)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches from the cursor on. A second iteration continues where the first stopped."""
        return map(joined, self.cuts())

    def cuts(self) -> Iterator[list[Cut]]:
        """The same batches, each as its slices of decoded row groups."""
        try:
            for cuts, after in self._batches():
                self._place = after
                self._rows_given += sum(each.count for each in cuts)
                yield cuts
        finally:
            self._log()

    def _batches(self) -> Iterator[tuple[list[Cut], Place]]:
        pieces = self._pieces(self._place)
        if self._batch_rows is not None:
            yield from cut(pieces, self._batch_rows, drop_last=self._drop_last)
            return
        for piece in pieces:
            if piece.rows.num_rows:
                yield [Cut(piece, 0, piece.rows.num_rows)], Place(piece.unit + 1, 0)

    def _pieces(self, start: Place) -> Iterator[Piece]:
        skipped = start.row
        numbered = enumerate(self._units[start.unit :], start=start.unit)
        for file, units in groupby(numbered, key=lambda unit: unit[1][0]):
            for unit, rows in self._rows_of(file, [(unit, group) for unit, (_, group) in units]):
                yield Piece(unit, skipped, rows.slice(skipped))
                skipped = 0
        self._unseen.end()

    def _rows_of(self, number: int, units: Sequence[tuple[int, int]]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of some row groups of one file. `units`: (number of the unit, row group)."""
        file = self.table.files[number]
        rule = self._coalescing or (LOCAL if file.file.is_local else REMOTE)
        source = OpenFile(file, self.traffic, rule, use_threads=self._use_threads)
        try:
            if self._where is None:
                yield from self._unfiltered(source, file.group_rows, units, ahead=not file.file.is_local)
            else:
                yield from self._filtered(source, file.group_rows, units, self._where)
        finally:
            source.close()

    def _unfiltered(
        self, source: OpenFile, group_rows: Sequence[int], units: Sequence[tuple[int, int]], *, ahead: bool
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """`ahead`: the next row group is fetched while this one is decoded and used."""
        columns = source.file_columns(self.schema.names)
        with ThreadPoolExecutor(1) as pool:
            waiting: Future[Segments] | None = None
            for index, (unit, group) in enumerate(units):
                segments = waiting.result() if waiting else source.fetch(group, columns)
                waiting = pool.submit(source.fetch, units[index + 1][1], columns) if ahead and index + 1 < len(units) else None
                rows = source.features(source.decode(group, columns, segments), self.schema, group_rows[group])
                self._unseen.look(rows)
                yield unit, rows

    def _filtered(
        self, source: OpenFile, group_rows: Sequence[int], units: Sequence[tuple[int, int]], where: RowFilter
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        matching = source.matching_groups(where)
        first = source.file_columns(where.features)
        rest = [column for column in source.file_columns(self.schema.names) if column not in first]
        for unit, group in units:
            if group not in matching:
                continue
            columns = source.decode(group, first, source.fetch(group, first))
            filtered_by = source.features(columns, self._filter_schema, group_rows[group])
            self._unseen.look(filtered_by)
            mask = where.mask(filtered_by)
            if not mask.true_count:
                continue
            columns |= source.decode(group, rest, source.fetch(group, rest))
            rows = source.features(columns, self.schema, group_rows[group])
            self._unseen.look(rows)
            yield unit, rows.filter(mask)

    def _place_of(self, cursor: Cursor) -> Place:
        table = self.table
        if cursor.table and cursor.table != table.identity:
            raise BadInput(f"{table.uri}: the cursor belongs to other files", "the table has changed since then: start at its beginning")
        unit = bisect_left(self._units, (cursor.file, cursor.row_group))
        if cursor.row == 0:
            return Place(unit, 0)
        if unit == len(self._units) or self._units[unit] != (cursor.file, cursor.row_group):
            raise BadInput(
                f"{table.uri}: {cursor} lies in no row group of this rank", "resume with the rank and number of ranks of the cursor"
            )
        if cursor.row > table.files[cursor.file].group_rows[cursor.row_group]:
            raise BadInput(f"{table.uri}: {cursor} lies after the end of its row group", "resume with the table of the cursor")
        return Place(unit, cursor.row)

    def _log(self) -> None:
        rows, read_bytes, requests = self._rows_given, self.traffic.read_bytes, self.traffic.requests
        if self._access_log is None or requests == self._logged[2]:
            return
        read = (*self.schema.names, *(name for name in self._filter_schema.names if name not in self.schema.names))
        before_rows, before_bytes, before_requests = self._logged
        Access(self.table.uri, read, rows - before_rows, read_bytes - before_bytes, requests - before_requests).append_to(self._access_log)
        self._logged = (rows, read_bytes, requests)
