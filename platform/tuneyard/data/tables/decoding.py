"""One open Parquet file: fetch the column chunks of a row group by the read plan, decode them with Arrow, and select features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from tuneyard.data.tables.features import entry_name, layout
from tuneyard.data.tables.filters import RowFilter
from tuneyard.data.tables.map_entries import map_entries
from tuneyard.data.tables.ranges import LOCAL, REMOTE, Coalescing, Range, RangeSource, Traffic, chunk_range, coalesced, leaves
from tuneyard.data.tables.schemas import fitted
from tuneyard.data.tables.table import TableFile, open_parquet, readable

Segments = Sequence[tuple[Range, pa.Buffer]]


class OpenFile:
    """A file of a table, open for reading row groups. Only `fetch` is safe for several threads."""

    def __init__(self, file: TableFile, traffic: Traffic, rule: Coalescing, *, use_threads: bool = False) -> None:
        self._file = file
        self._traffic = traffic
        self._rule = rule
        self._use_threads = use_threads
        self._source = RangeSource(file.file, traffic)

    @cached_property
    def _parquet(self) -> Any:
        return open_parquet(self._source, self._file.footer)

    @cached_property
    def _leaves(self) -> dict[str, range]:
        return leaves(self._file.schema)

    def file_columns(self, features: Iterable[str]) -> tuple[str, ...]:
        """The columns of this file that hold these features."""
        return layout(features, self._file.schema).file_columns

    def matching_groups(self, where: RowFilter) -> set[int]:
        """Row groups that may hold matching rows."""
        with readable(self._file.file, "its statistics"):
            return where.matching_groups(self._source, self._file.schema, len(self._file.group_rows))

    def fetch(self, group: int, columns: Sequence[str]) -> Segments:
        """Read the column chunks of these columns; neighbouring chunks in one request."""
        metadata = self._parquet.metadata.row_group(group)
        ranges = [chunk_range(metadata.column(leaf)) for column in columns for leaf in self._leaves[column]]
        self._traffic.wanted_bytes += sum(one.size for one in ranges)
        return self._source.fetched(coalesced(ranges, self._rule))

    def decode(self, group: int, columns: Sequence[str], segments: Segments) -> dict[str, pa.Array]:
        """The columns as arrays. Raises BadInput where the row group is damaged."""
        if not columns:
            return {}
        self._source.serve(segments)
        try:
            with readable(self._file.file, f"row group {group}"):
                table = self._parquet.read_row_group(group, columns=list(columns), use_threads=self._use_threads)
            return {name: _one_array(table.column(name)) for name in columns}
        finally:
            self._source.serve(())

    def features(self, columns: dict[str, pa.Array], fields: pa.Schema, rows: int) -> pa.RecordBatch:
        """A batch with `fields` from decoded columns; a feature that this file lacks is null."""
        places = layout(fields.names, self._file.schema)
        arrays = {name: columns[name] for name in places.columns}
        for column, keys in places.entries.items():
            entries = map_entries(columns[column], keys)
            arrays |= {entry_name(column, key): array for key, array in zip(keys, entries, strict=True)}
        missing = set(places.missing)
        made = [pa.nulls(rows, field.type) if field.name in missing else fitted(arrays[field.name], field.type) for field in fields]
        return pa.RecordBatch.from_arrays(made, schema=fields)

    def content(self, group: int, columns: Sequence[str]) -> Iterator[Any]:
        """Bytes that tell the content of these columns in a row group: how they are stored, and what is stored."""
        metadata = self._parquet.metadata.row_group(group)
        for column in columns:
            yield str(self._file.schema.field(column)).encode()
            for leaf in self._leaves[column]:
                chunk = metadata.column(leaf)
                yield f"{chunk.path_in_schema} {chunk.physical_type} {chunk.compression} {chunk.num_values}|".encode()
        for one, buffer in self.fetch(group, columns):
            yield f"{one.size}|".encode()
            yield buffer

    def close(self) -> None:
        self._source.close()


def content_of(file: TableFile, groups: Iterable[int], features: Sequence[str]) -> Iterator[Any]:
    """Bytes that tell the content of features in row groups of a file. The columns are read, and not decoded. Raises as `fetch`."""
    source = OpenFile(file, Traffic(), LOCAL if file.file.is_local else REMOTE)
    try:
        columns = source.file_columns(features)
        for group in groups:
            yield f"{file.group_rows[group]} rows|".encode()
            yield from source.content(group, columns)
    finally:
        source.close()


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)
