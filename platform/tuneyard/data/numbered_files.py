"""Files whose rows are read by number: Parquet by row groups, JSONL by byte offsets that one pass has noted.

Files of other types are first copied to a JSONL file in the cache. A row that cannot be read is a dict with the key `ERROR` and the reason.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from tuneyard.api.errors import said_by
from tuneyard.data.cache import cached_folder
from tuneyard.data.columns import rows_of
from tuneyard.data.file_types import DataFile, FoundFile
from tuneyard.data.lines import LongLine, bounded_lines
from tuneyard.data.records import BadRow, Record, parquet_file, parse_json_row, read_records
from tuneyard.data.sources import Located

ERROR = "__tuneyard_error__"
_OFFSET_EVERY = 64
"""Rows between two noted byte offsets: they take 8 bytes of memory per 64 rows."""
_NEAR_ROWS = 1024
"""Rows between two that are read in one go. Farther ones are sought by their offsets."""


@dataclass
class ParquetRows:
    """`starts`: the number of the first row of each row group, and the number of rows."""

    file: DataFile
    starts: list[int]

    @classmethod
    def index(cls, file: DataFile) -> ParquetRows:
        metadata = parquet_file(file).metadata
        starts = [0]
        for group in range(metadata.num_row_groups):
            starts.append(starts[-1] + metadata.row_group(group).num_rows)
        return cls(file, starts)

    @property
    def count(self) -> int:
        return self.starts[-1]

    def read(self, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        """The rows with these numbers, which are in order."""
        import pyarrow as pa

        parquet = parquet_file(self.file)
        for group, wanted in groupby(numbers, lambda number: bisect_right(self.starts, number) - 1):
            places = [number - self.starts[group] for number in wanted]
            try:
                table = _taken(parquet.read_row_group(group), places)
            except (pa.ArrowException, OSError) as error:
                reason = f"{self.file.uri}: row group {group} is damaged: {said_by(error)}"
                yield from ({ERROR: reason} for _ in places)
            else:
                for batch in table.to_batches():
                    rows = rows_of(batch, fillers=True)
                    yield from ({ERROR: f"{self.file.uri}: {values}"} if isinstance(values, str) else values for values in rows)


@dataclass
class JsonlRows:
    """`count`: number of rows, without empty lines."""

    file: DataFile
    count: int
    offsets: array[int]
    """Byte offset of every 64th row."""

    @classmethod
    def index(cls, file: DataFile) -> JsonlRows:
        count, position, offsets = 0, 0, array("q")
        with file.open() as stream:
            for line in bounded_lines(stream):
                if isinstance(line, LongLine) or line.strip():
                    if count % _OFFSET_EVERY == 0:
                        offsets.append(position)
                    count += 1
                position += line.size_bytes if isinstance(line, LongLine) else len(line)
        return cls(file, count, offsets)

    def read(self, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        """The rows with these numbers, which are in order."""
        with self.file.open_buffered() as stream:
            for near in _runs(numbers):
                yield from self._run(stream, near)

    def _run(self, stream: IO[bytes], numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Rows that are near each other: reading on is cheaper than seeking."""
        wanted, number = set(numbers), numbers[0] - numbers[0] % _OFFSET_EVERY
        stream.seek(self.offsets[numbers[0] // _OFFSET_EVERY])
        for line in bounded_lines(stream):
            if isinstance(line, bytes) and not line.strip():
                continue
            if number in wanted:
                yield self._row(line)
            if number >= numbers[-1]:
                return
            number += 1

    def _row(self, line: bytes | LongLine) -> dict[str, Any]:
        if isinstance(line, LongLine):
            return {ERROR: f"{self.file.uri}: {line.reason}"}
        try:
            return parse_json_row(line.removeprefix(b"\xef\xbb\xbf"))
        except ValueError as error:
            return {ERROR: f"{self.file.uri}: {error}"}


def _runs(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """The numbers in runs with small gaps."""
    start = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] - numbers[place - 1] > _NEAR_ROWS:
            yield numbers[start:place]
            start = place


def _taken(table: Any, places: Sequence[int]) -> Any:
    """The rows at these places of a pyarrow.Table, which are in order."""
    whole = places[-1] - places[0] + 1 == len(places)
    return table.slice(places[0], len(places)) if whole else table.take(list(places))


def readable_by_number(located: Located, root: Path) -> list[DataFile]:
    """The files themselves where all give access to single rows, else one JSONL copy in the cache."""
    if all((file.kind == "parquet" and not file.part) or (file.kind == "jsonl" and not file.compression) for file in located.files):
        return list(located.files)

    def build(folder: Path) -> None:
        with (folder / "rows.jsonl").open("w", encoding="utf-8") as out:
            for row in read_records(located.files):
                for line in _copies(row):
                    out.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")

    key = {"code": 2, "kinds": [file.reader for file in located.files], "files": [file.identity() for file in located.files]}
    entry, _ = cached_folder(root / "rows", key, build)
    copy = entry / "rows.jsonl"
    return [DataFile(FoundFile(located.uri, str(copy), copy.stat().st_size), "jsonl")]


def _copies(row: Record | BadRow) -> list[dict[str, Any]]:
    return [row.values] if isinstance(row, Record) else [{ERROR: f"{row.place}: {row.reason}"}] * row.count
