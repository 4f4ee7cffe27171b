"""Writes wide tables: feature logs (rows as dictionaries, files of rows, Arrow batches) become Parquet files of a chosen size.

    rows -> Arrow -> row group of N rows -> file of M bytes -> committed under its name

Files are committed atomically; a killed writer leaves all files before the current one. Features may come and go: a new feature starts a
new file, a missing one is null. A feature whose type changes is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tuneyard.api import BadInput
from tuneyard.data.records import BadRow, read_records
from tuneyard.data.sources import locate
from tuneyard.data.tables.rows import columns_of, is_untyped, typed
from tuneyard.data.tables.schemas import fitted, plain, same_values
from tuneyard.data.tables.table import counted, open_table
from tuneyard.storage import open_store

_ROWS_AT_ONCE = 4096
Rows = Iterable[Mapping[str, Any]] | Any
"""Rows as dictionaries, a `pyarrow.Table` or a `pyarrow.RecordBatch`."""


class TableWriter:
    """A context manager. Its exit writes and commits buffered rows; an exit by an exception writes nothing more.

    `schema`: types of features that rows do not show (float32, int32, maps). `append`: add files to an existing table. Raises BadInput
    where the folder already holds files and `append` is False.
    """

    def __init__(
        self,
        uri: str,
        *,
        row_group_rows: int = 16_384,
        file_bytes: int = 512 << 20,
        schema: pa.Schema | None = None,
        compression: str = "zstd",
        append: bool = False,
    ) -> None:
        if row_group_rows < 1 or file_bytes < 1:
            raise BadInput(f"row groups of {row_group_rows} rows, files of {file_bytes} bytes", "both are at least 1")
        self.uri = uri
        self.files: list[str] = []
        """Names of committed files."""
        self.rows = 0
        """Rows in committed files."""
        self._store = open_store(uri)
        self._row_group_rows = row_group_rows
        self._file_bytes = file_bytes
        self._given = schema
        self._compression = compression
        self._known: dict[str, pa.DataType] = {field.name: field.type for field in schema} if schema is not None else {}
        self._number = self._first_number(append)
        self._held: list[pa.Table] = []
        self._held_rows = 0
        self._seen_rows = 0
        self._open: _OpenPart | None = None
        self._folder = TemporaryDirectory(prefix="tuneyard-table-")

    def _first_number(self, append: bool) -> int:
        there = self._store.list()
        self._extends = bool(there)
        if there and not append:
            raise BadInput(
                f"{self.uri}: holds files already, such as {there[0].path}", "name a new folder, or add to the table: append=True"
            )
        if there:
            for field in open_table(self.uri).schema:
                self._learn(field.name, field.type)
        numbers = [int(stem[5:]) for file in there if (stem := Path(file.path).stem).startswith("part-") and stem[5:].isdigit()]
        return max(numbers, default=-1) + 1

    def write(self, rows: Rows, *, places: Iterable[str] | None = None) -> None:
        """Add rows. Raises BadInput for a value or a column whose type differs from that of earlier rows.

        `places`: the name of each row for people (`log.jsonl:17`); default: "row N".
        """
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if not isinstance(rows, pa.Table):
            several: list[Any] = list(rows)
            names = list(places) if places is not None else [f"row {self._seen_rows + number + 1:,}" for number in range(len(several))]
            rows = columns_of(several, names, self._given)
            if several and rows.num_columns == 0:
                raise BadInput(f"{names[0]}: neither this row nor the {len(several) - 1:,} after it have a feature", "leave empty rows out")
        if rows.num_rows == 0:
            return
        where = f"row {self._seen_rows + 1:,}"
        rows = pa.table({field.name: self._typed(field, rows.column(field.name), where) for field in rows.schema})
        self._seen_rows += rows.num_rows
        self._held.append(rows)
        self._held_rows += rows.num_rows
        while self._held_rows >= self._row_group_rows:
            self._write_group(self._row_group_rows)

    def _typed(self, field: pa.Field, column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
        known = self._learn(field.name, field.type)
        if known is None or field.type.equals(known):
            return column
        if is_untyped(field.type):
            return pa.chunked_array([typed(chunk, known) for chunk in column.chunks], known)
        if same_values(field.type, known):
            return pa.chunked_array([fitted(chunk, known) for chunk in column.chunks], known)
        try:
            if not _is_wider(field.type, known):
                raise pa.ArrowInvalid("another type")
            return pc.cast(column, known)
        except pa.ArrowException as error:
            raise BadInput(
                f"{self.uri}: feature {field.name!r} was {known} before, and is {field.type} from {where} on",
                "write it as one type, or name its type from the start: schema=pa.schema([(name, type)])",
            ) from error

    def _learn(self, name: str, kind: pa.DataType) -> pa.DataType | None:
        """The known type of a column; the first type becomes the known one. None where there is none yet."""
        known = self._known.get(name)
        if known is None and not is_untyped(kind):
            self._known[name] = kind
        return self._known.get(name)

    def _write_group(self, count: int) -> None:
        rows = pa.concat_tables([self._settled(held) for held in self._held], promote_options="default")
        group, rest = rows.slice(0, count), rows.slice(count)
        self._held, self._held_rows = ([rest] if rest.num_rows else []), rest.num_rows
        if self._open is not None and not set(group.column_names) <= set(self._open.schema.names):
            self._commit()
        if self._open is None:
            self._open = self._part(self._schema_of(group))
        self._open.write(group)
        if self._open.size_bytes >= self._file_bytes:
            self._commit()

    def _part(self, schema: pa.Schema) -> _OpenPart:
        return _OpenPart(Path(self._folder.name) / f"part-{self._number:05d}.parquet", schema, self._compression)

    def _settled(self, rows: pa.Table) -> pa.Table:
        """Rows whose untyped columns get the type learned since; null type where there is none."""
        for index, field in enumerate(rows.schema):
            if is_untyped(field.type):
                kind = self._known.get(field.name, pa.null())
                column = pa.chunked_array([typed(chunk, kind) for chunk in rows.column(index).chunks], kind)
                rows = rows.set_column(index, pa.field(field.name, kind), column)
        return rows

    def _schema_of(self, group: pa.Table) -> pa.Schema:
        return pa.schema([pa.field(field.name, self._known.get(field.name, field.type)) for field in group.schema])

    def _commit(self) -> None:
        if self._open is None:
            return
        rows = self._open.close()
        self._store.put_file(self._open.path.name, self._open.path)
        self._open.path.unlink()
        self.files.append(self._open.path.name)
        self.rows += rows
        self._number += 1
        self._open = None

    def close(self) -> None:
        """Write and commit buffered rows. Without any row, write an empty file of the given schema; raises BadInput without a schema."""
        try:
            if self._held_rows:
                self._write_group(self._held_rows)
            if self._open is None and not self.files and not self._extends:
                self._open = self._part(self._empty_schema())
            self._commit()
        finally:
            self._folder.cleanup()

    def _empty_schema(self) -> pa.Schema:
        if self._given is None:
            raise BadInput(f"{self.uri}: the source has no rows", "give rows, or schema=pa.schema([(name, type)]) for a table without rows")
        return self._given

    def __repr__(self) -> str:
        return f"TableWriter({self.uri!r}: {counted(len(self.files), 'file')}, {counted(self.rows, 'row')})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._folder.cleanup()


class _OpenPart:
    """A file that is being written on the local disk."""

    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        self.path = path
        self.schema = schema
        self._rows = 0
        self._writer = pq.ParquetWriter(path, schema, compression=compression)

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size

    def write(self, group: pa.Table) -> None:
        """Write one row group. Columns that `group` lacks are null."""
        present = set(group.column_names)
        columns = [
            group.column(field.name).cast(field.type) if field.name in present else pa.nulls(group.num_rows, field.type)
            for field in self.schema
        ]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self.schema), row_group_size=max(group.num_rows, 1))
        self._rows += group.num_rows

    def close(self) -> int:
        self._writer.close()
        return self._rows


def write_table(uri: str, source: str | Iterable[Any], **options: Any) -> TableWriter:
    """Write a table from a file of rows (JSON lines, CSV, Arrow), or from an iterable of rows or Arrow batches.

    `options`: the options of `TableWriter`. Returns the closed writer with its `files` and `rows`. Raises BadInput for an unusable row.
    """
    located = _located_rows(source) if isinstance(source, str) else _numbered(source)
    with TableWriter(uri, **options) as writer:
        for places, rows in _grouped(located):
            writer.write(rows, places=places)
    return writer


def _located_rows(source: str) -> Iterator[tuple[str, Any]]:
    for row in read_records(locate(source).files):
        if isinstance(row, BadRow):
            raise BadInput(f"{row.place}: {row.reason}", row.advice or "repair the row, or take it out")
        yield row.place, row.values


def _numbered(source: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for number, item in enumerate(source, start=1):
        if not isinstance(item, (pa.RecordBatch, pa.Table, Mapping)):
            raise BadInput(f"item {number:,} of the source is {type(item).__name__}", "give rows as dictionaries, or Arrow batches")
        yield f"row {number:,}", item


def _grouped(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[list[str], Any]]:
    """Rows in groups of up to _ROWS_AT_ONCE, and Arrow batches unchanged, in order."""
    places: list[str] = []
    held: list[Any] = []
    for place, item in items:
        if isinstance(item, Mapping):
            places.append(place)
            held.append(item)
        if held and (len(held) == _ROWS_AT_ONCE or not isinstance(item, Mapping)):
            yield places, held
            places, held = [], []
        if not isinstance(item, Mapping):
            yield [place], item
    if held:
        yield places, held


def _is_wider(found: pa.DataType, known: pa.DataType) -> bool:
    """Whether `found` has whole numbers where `known` has fractions, at any depth. They fit without loss of meaning."""
    if pa.types.is_integer(found) and pa.types.is_floating(known):
        return True
    found, known = plain(found), plain(known)
    if pa.types.is_list(found) and pa.types.is_list(known):
        return _is_wider(found.value_type, known.value_type)
    if pa.types.is_map(found) and pa.types.is_map(known):
        return bool(found.key_type.equals(known.key_type)) and _is_wider(found.item_type, known.item_type)
    return False
