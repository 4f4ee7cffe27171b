"""Arrow files read piece by piece; a piece may begin or end inside a record batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tuneyard.data.file_types import DataFile
from tuneyard.data.records import BadRow, Record, arrow_errors, batch_records
from tuneyard.data.stream.forward import REQUEST_BYTES


@dataclass
class Batches:
    """Parts of record batches, each with the number of rows before it."""

    file: DataFile
    size_bytes: int
    parts: list[tuple[Any, int]]

    def blocks(self) -> Iterator[memoryview]:
        sink = pa.BufferOutputStream()
        for batch, _ in self.parts:
            with pa.ipc.new_stream(sink, batch.schema) as writer:  # with dictionaries, and only these rows of each column
                writer.write_batch(batch)
        yield memoryview(sink.getvalue())

    def records(self) -> Iterator[Record | BadRow]:
        for batch, first in self.parts:
            yield from batch_records(self.file, batch, first)


class ArrowReader:
    """Rows of an Arrow file or stream. Rows of a batch count as equally long. A local file is mapped, so skipped batches are not read."""

    def __init__(self, file: DataFile) -> None:
        self._file = file
        with arrow_errors(file):
            self._source = pa.memory_map(file.path) if file.is_local else pa.PythonFile(file.open_buffered(REQUEST_BYTES), "r")
            magic = self._source.read(6)
            self._source.seek(0)
            if magic == b"ARROW1":  # a stream between the marks of a file; its footer shows that it is whole
                pa.ipc.open_file(self._source)
                self._source.seek(8)
            self._reader = pa.ipc.open_stream(self._source)
        self._batch: Any = None
        self._begin: int = 0
        self._end: int = self._source.tell()
        self._next = self._before = self.covered = 0

    def take(self, start: int, end: int) -> Batches:
        parts: list[tuple[Any, int]] = []
        begin = max(start, self._begin)
        with arrow_errors(self._file):
            while self._batch is not None or self._advance():
                first, last = max(self._next, self._row_at(start)), self._row_at(end)
                if first < last:
                    part = self._batch.slice(first, last - first)
                    part.validate(full=True)
                    parts.append((part, self._before + first))
                    self._next = last
                if self._end >= end or not self._advance():
                    break
        self.covered = end
        return Batches(self._file, max(0, min(end, self._end) - begin), parts)

    def _advance(self) -> bool:
        """Read the next batch. False: there is none."""
        if self._batch is not None:
            self._before += self._batch.num_rows
        self._begin, self._next = self._end, 0
        try:
            self._batch = self._reader.read_next_batch()
        except StopIteration:
            self._batch = None
            return False
        self._end = self._source.tell()
        return True

    def _row_at(self, place: int) -> int:
        """The first row of the batch that begins at or after `place`."""
        rows: int = self._batch.num_rows
        size = max(1, self._end - self._begin)
        row = -(-(place - self._begin) * rows // size)
        return min(rows, max(0, row))
