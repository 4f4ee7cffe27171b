"""Files that can only be read from their front, read piece by piece: compressed lines, CSV, Arrow.

A piece holds the rows whose first byte, decompressed, lies in [start, end). A reader stands behind the last row that it gave: a piece that
lies further on is reached by reading on, which takes a small part of the time that its tokens take; one that lies before by starting again.
Each process keeps some readers open (`readers`), so that it reads each file about once.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from tuneyard.data.csv_rows import header_of
from tuneyard.data.encoding import Decoded, refuse_utf_16
from tuneyard.data.file_types import DataFile
from tuneyard.data.lines import BYTE_ORDER_MARK, LONGEST_ROW_BYTES, LongLine, broken_off, lines_of
from tuneyard.data.records import BadRow, Record, arrow_errors, batch_records, csv_records, json_record, text_record

OPEN_END = 1 << 62
"""The end of a file's last piece: it has all that follows."""
_BLOCK = 1 << 20
_REQUEST_BYTES = 2 << 20
"""To a store: a process may have dozens of files open."""
_CSV_BUFFER = 1 << 20
"""Below LONGEST_ROW_BYTES: no row in it is too long."""


class Rows(Protocol):
    """The rows of one piece, in memory."""

    @property
    def size_bytes(self) -> int: ...

    def blocks(self) -> Iterator[bytes] | Iterator[memoryview]:
        """What the rows depend on, for a hash."""

    def records(self) -> Iterator[Record | BadRow]: ...


class Reader(Protocol):
    """One pass over a file."""

    covered: int
    """All rows that begin before this place were given or passed over."""

    def take(self, start: int, end: int) -> Rows:
        """The rows that begin in [start, end), where `start` is no less than `covered`. Raises BadInput where the data break off."""


def reader_of(file: DataFile) -> Reader:
    """A reader at the front of a file. Raises BadInput where it is not what it should be."""
    if file.kind == "arrow":
        return ArrowReader(file)
    return CsvReader(file) if file.kind == "csv" else LineReader(file)


@dataclass
class Lines:
    """Whole lines with their ends, joined to blocks, and lines that were skipped because they are too long. `line`: the first one's
    number."""

    file: DataFile
    begin: int
    line: int
    parts: list[bytes | LongLine] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, part: bytes | LongLine) -> None:
        self.parts.append(part)
        self.size_bytes += len(part) if isinstance(part, bytes) else part.size_bytes

    def blocks(self) -> Iterator[bytes]:
        for part in self.parts:
            yield part if isinstance(part, bytes) else repr(part).encode()

    def __iter__(self) -> Iterator[bytes | LongLine]:
        for part in self.parts:
            if isinstance(part, LongLine):
                yield part
                continue
            start = 0
            while start < len(part):
                end = part.find(b"\n", start) + 1 or len(part)
                yield part[start:end]
                start = end

    def records(self) -> Iterator[Record | BadRow]:
        file = self.file
        for number, whole in enumerate(self, start=self.line):
            line = whole
            if number == 1:
                refuse_utf_16(file, whole[:64] if isinstance(whole, bytes) else whole.start)
                line = whole.removeprefix(BYTE_ORDER_MARK) if isinstance(whole, bytes) else whole
            if isinstance(line, bytes) and not line.strip():
                continue
            place = f"{file.uri}:{number}"
            yield json_record(file, place, line, first=number == 1) if file.kind == "jsonl" else text_record(file, place, line)


class LineReader:
    """Lines of a compressed file."""

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self._stream = file.open(_REQUEST_BYTES)
        self._place, self._line, self.covered = 0, 1, 0

    def take(self, start: int, end: int) -> Lines:
        try:
            if self._place < start:
                self._pass_over(start)
            lines = self._until(end)
        except (pa.ArrowException, EOFError, OSError) as error:
            raise broken_off(self._file, f" (behind line {self._line - 1:,})", error) from error
        self.covered = end
        return lines

    def _pass_over(self, start: int) -> None:
        """Go to the first line that begins at `start` or behind it."""
        while self._place < start - 1 and (block := self._stream.read(min(_BLOCK, start - 1 - self._place))):
            self._place += len(block)
            self._line += block.count(b"\n")
        while block := self._stream.readline(_BLOCK):
            self._place += len(block)
            if block.endswith(b"\n"):
                self._line += 1
                return

    def _until(self, end: int) -> Lines:
        lines = Lines(self._file, self._place, self._line)
        while self._place < end and (block := self._stream.read(min(_BLOCK, end - self._place))):
            whole = block.rfind(b"\n") + 1
            rest = self._stream.readline(LONGEST_ROW_BYTES + 1 - (len(block) - whole)) if whole < len(block) else b""
            self._place += len(block) + len(rest)
            self._line += block.count(b"\n") + (whole < len(block))
            if len(block) - whole + len(rest) <= LONGEST_ROW_BYTES:
                lines.add(block + rest)
                continue
            if whole:
                lines.add(block[:whole])
            size = len(block) - whole + len(rest)
            while not rest.endswith(b"\n") and (rest := self._stream.readline(_BLOCK)):
                size += len(rest)
                self._place += len(rest)
            lines.add(LongLine(size, block[whole : whole + 64]))
        return lines


@dataclass
class CsvLines(Lines):
    """Whole rows of CSV; `header` and `delimiter` of their file."""

    header: list[str] = field(default_factory=list)
    delimiter: str = ","

    def blocks(self) -> Iterator[bytes]:
        yield repr((self.header, self.delimiter)).encode()
        yield from super().blocks()

    def records(self) -> Iterator[Record | BadRow]:
        uri, first = self.file.uri, self.line
        return csv_records(self.file, Decoded(iter(self)), self.header, self.delimiter, lambda line: f"{uri}:{first + line - 1}")


class CsvReader:
    """Rows of CSV: a row may span lines. Rows as RFC 4180 has them are told apart by an expression, the others as `csv_rows` does."""

    def __init__(self, file: DataFile) -> None:
        csv.field_size_limit(LONGEST_ROW_BYTES)
        self._file = file
        opened: Any = file.open(_REQUEST_BYTES)
        self._stream = io.BufferedReader(opened, _CSV_BUFFER)
        self._lines = lines_of(file, self._stream)
        self._place, self._line, self.covered = 0, 1, 0
        self._header, self._delimiter = header_of(file, Decoded(self._counted()))
        self._row_pattern = _row_pattern(self._delimiter)

    def take(self, start: int, end: int) -> CsvLines:
        rows = CsvLines(self._file, 0, 0, header=self._header, delimiter=self._delimiter)
        try:
            self._read(start, None)
            rows.begin, rows.line = self._place, self._line
            self._read(end, rows)
        except (pa.ArrowException, EOFError, OSError) as error:
            raise broken_off(self._file, f" (behind line {self._line - 1:,})", error) from error
        self.covered = end
        return rows

    def _read(self, end: int, rows: CsvLines | None) -> None:
        """Go to the first row that begins at `end` or behind it. `rows`: takes those before."""
        while self._place < end:
            size = self._whole_rows(self._stream.peek(1), end - self._place)
            if size:
                block = self._stream.read(size)
                self._place += size
                self._line += block.count(b"\n")
                if rows is not None:
                    rows.add(block)
                continue
            row = self._row()
            if not row:
                return
            if rows is not None:
                for line in row:
                    rows.add(line)

    def _whole_rows(self, data: bytes, size: int) -> int:
        """Bytes of the plain rows at the start of `data` that begin before `size`."""
        end = 0
        while end < size and (row := self._row_pattern.match(data, end)):
            end = row.end()
        return end

    def _counted(self) -> Iterator[bytes | LongLine]:
        for line in self._lines:
            self._place += len(line) if isinstance(line, bytes) else line.size_bytes
            self._line += 1
            yield line

    def _row(self) -> list[bytes | LongLine]:
        """The lines of the next row, whatever it holds; none at the end."""
        taken: list[bytes | LongLine] = []
        lines = Decoded(self._taking(taken))
        with suppress(csv.Error):
            next(csv.reader(lines, delimiter=self._delimiter, strict=True), None)
        return taken

    def _taking(self, taken: list[bytes | LongLine]) -> Iterator[bytes | LongLine]:
        for line in self._counted():
            taken.append(line)
            yield line


def _row_pattern(delimiter: str) -> re.Pattern[bytes]:
    """A row whose fields are quoted as a whole or hold no quotation mark (RFC 4180): `csv.reader` takes the same lines for it."""
    between = re.escape(delimiter.encode())
    field = rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^"\r\n' + between + rb"]*+)"
    return re.compile(field + rb"(?:" + between + field + rb")*+\r?\n")


@dataclass
class Batches:
    """Parts of record batches, each with the number of rows before it."""

    file: DataFile
    size_bytes: int
    parts: list[tuple[Any, int]]

    def blocks(self) -> Iterator[memoryview]:
        sink = pa.BufferOutputStream()
        for batch, _ in self.parts:
            with pa.ipc.new_stream(sink, batch.schema) as writer:  # with the dictionaries, and no more of each column than these rows
                writer.write_batch(batch)
        yield memoryview(sink.getvalue())

    def records(self) -> Iterator[Record | BadRow]:
        for batch, first in self.parts:
            yield from batch_records(self.file, batch, first)


class ArrowReader:
    """Rows of an Arrow file or stream: those of a batch are taken to begin at equal distances. A local file is mapped, so that batches that
    are passed over are not read."""

    def __init__(self, file: DataFile) -> None:
        self._file = file
        with arrow_errors(file):
            self._source = pa.memory_map(file.path) if file.is_local else pa.PythonFile(file.open_buffered(_REQUEST_BYTES), "r")
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
        """Go to the next batch. False: there is none."""
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
        """The first row of the batch that begins at `place` or behind it."""
        rows: int = self._batch.num_rows
        size = max(1, self._end - self._begin)
        row = -(-(place - self._begin) * rows // size)
        return min(rows, max(0, row))
