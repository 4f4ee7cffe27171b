"""A table: Parquet files at a URI, their footers read once, and one schema for all of them.

The table keeps the schema and the rows per row group of each footer. Offsets and statistics of column chunks are kept for the first files
only, up to 16 MiB of footers, because thousands of footers would fill the memory. For other files they are read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from tuneyard.api import BadInput
from tuneyard.data.file_types import DataFile
from tuneyard.data.sources import locate
from tuneyard.data.tables.ranges import RangeSource, Traffic
from tuneyard.data.tables.rewrite_state import refuse_unfinished
from tuneyard.data.tables.schemas import united

_FOOTERS_AT_ONCE = 8
_FOOTERS_KEPT_BYTES = 16 << 20


@dataclass(frozen=True)
class TableFile:
    """A Parquet file of a table. `group_rows`: rows per row group; `footer`: its `pyarrow.parquet.FileMetaData`, if kept in memory."""

    file: DataFile
    schema: pa.Schema = field(repr=False)
    group_rows: tuple[int, ...] = field(repr=False)
    footer: Any = field(default=None, compare=False, repr=False)

    @property
    def uri(self) -> str:
        return self.file.uri


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True, repr=False)
class Table:
    """Files in a fixed order. `schema` has every column of every file."""

    uri: str
    files: tuple[TableFile, ...]
    schema: pa.Schema

    def __repr__(self) -> str:
        sizes = (counted(len(self.files), "file"), counted(self.rows, "row"), counted(len(self.schema), "column"))
        return f"Table({self.uri!r}: {', '.join(sizes)})"

    @property
    def rows(self) -> int:
        return sum(sum(file.group_rows) for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.file.size_bytes for file in self.files)

    @cached_property
    def row_groups(self) -> tuple[tuple[int, int], ...]:
        """(file, row group) of each row group, in reading order."""
        return tuple((number, group) for number, file in enumerate(self.files) for group in range(len(file.group_rows)))

    @cached_property
    def identity(self) -> str:
        """A hash that changes when files are added, removed or rewritten with other rows. A cursor is valid for one identity only."""
        parts = (f"{file.uri.rpartition('/')[2]} {file.file.size_bytes} {file.file.found.etag} {file.group_rows}" for file in self.files)
        return xxhash.xxh3_64_hexdigest("\n".join(parts).encode())


def open_table(uri: str) -> Table:
    """Find the Parquet files at `uri` and read their footers.

    Raises BadInput: no file, another type of file, a truncated file, a column whose type differs between files, an unfinished rewrite.
    """
    refuse_unfinished(uri)
    located = locate(uri)
    kind = next((file.kind for file in located.files if file.kind != "parquet"), None)
    if kind is not None:
        raise BadInput(f"{uri}: holds {kind}, not Parquet", "write a table from it: tuneyard.data.tables.write_table")
    partitioned = next((file for file in located.files if file.part and file.part.constants), None)
    if partitioned is not None and partitioned.part is not None:
        names = ", ".join(name for name, _ in partitioned.part.constants)
        raise BadInput(f"{uri}: the columns {names} stand in the table's metadata alone", "write the table without partitions")
    return table_of(uri, located.files)


def table_of(uri: str, files: Sequence[DataFile]) -> Table:
    """The table of these Parquet files, in this order. Raises BadInput as `open_table` does."""
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        opened = tuple(_within_limit(pool.map(_table_file, files)))
    schema = united((file.uri, file.schema) for file in opened)
    return Table(uri, opened, schema)


def _within_limit(files: Iterable[TableFile]) -> Iterator[TableFile]:
    """The files; footers beyond _FOOTERS_KEPT_BYTES are dropped."""
    kept = 0
    for file in files:
        kept += file.footer.serialized_size
        yield file if kept <= _FOOTERS_KEPT_BYTES else replace(file, footer=None)


def _table_file(file: DataFile) -> TableFile:
    source = RangeSource(file, Traffic())
    try:
        with readable(file, "its footer"):
            metadata = pq.read_metadata(pa.PythonFile(source, "r"))
        groups = tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
        return TableFile(file, metadata.schema.to_arrow_schema().remove_metadata(), groups, metadata)
    finally:
        source.close()


def open_parquet(source: RangeSource, footer: Any = None) -> Any:
    """A `pyarrow.parquet.ParquetFile` over the source. Raises BadInput for a file without a whole footer."""
    with readable(source.file, "its footer"):
        return pq.ParquetFile(pa.PythonFile(source, "r"), metadata=footer, pre_buffer=False)


@contextmanager
def readable(file: DataFile, part: str) -> Iterator[None]:
    """Raises BadInput with the file and the part in place of Arrow's errors about a damaged file."""
    try:
        yield
    except (pa.ArrowException, EOFError) as error:
        raise _damaged(file, part, error) from error
    except OSError as error:
        if error.errno:  # an error of the operating system or the network, not of the content
            raise
        raise _damaged(file, part, error) from error


class Damaged(BadInput):
    """The content of a file, or of a part of it, cannot be read."""


def _damaged(file: DataFile, part: str, error: BaseException) -> Damaged:
    return Damaged(
        f"{file.uri}: {part} cannot be read ({file.size_bytes:,} bytes): {(str(error).splitlines() or ['damaged'])[0][:200]}",
        "was the copy or the write cut off? make the file again, or point at the folder's good files",
    )
