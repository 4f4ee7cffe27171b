"""CSV files read piece by piece. A row belongs to the piece of its first byte, even where line breaks in its fields lie in the next one."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tuneyard.data.csv_rows import header_of
from tuneyard.data.encoding import Decoded
from tuneyard.data.file_types import DataFile
from tuneyard.data.lines import LONGEST_ROW_BYTES, LongLine, broken_off, lines_of
from tuneyard.data.records import BadRow, Record, csv_records
from tuneyard.data.stream.forward import REQUEST_BYTES, Lines

_BUFFER_BYTES = 1 << 20
"""Size of the buffer. It is below LONGEST_ROW_BYTES, so no row in it is too long."""


@dataclass
class CsvLines(Lines):
    """Whole rows of CSV. `header` and `delimiter`: from the start of the file."""

    header: list[str] = field(default_factory=list)
    delimiter: str = ","

    def blocks(self) -> Iterator[bytes]:
        yield repr((self.header, self.delimiter)).encode()
        yield from super().blocks()

    def records(self) -> Iterator[Record | BadRow]:
        uri, first = self.file.uri, self.line
        return csv_records(self.file, Decoded(iter(self)), self.header, self.delimiter, lambda line: f"{uri}:{first + line - 1}")


class CsvReader:
    """Rows of CSV, which may span lines. A regular expression finds the ends of RFC 4180 rows, `csv.reader` the ends of all others."""

    def __init__(self, file: DataFile) -> None:
        csv.field_size_limit(LONGEST_ROW_BYTES)
        self._file = file
        opened: Any = file.open(REQUEST_BYTES)
        self._stream = io.BufferedReader(opened, _BUFFER_BYTES)
        self._lines = lines_of(file, self._stream)
        self._place, self._line, self.covered = 0, 1, 0
        self._header, self._delimiter, _ = header_of(file, Decoded(self._counted()))
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
        """Advance to the first row that begins at or after `end`. `rows`: collects the rows before it."""
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
        """The lines of the next row, good or bad; empty at the end of the file."""
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
    """Matches an RFC 4180 row: each field is fully quoted or has no quotation mark. `csv.reader` finds the same end of the row."""
    between = re.escape(delimiter.encode())
    field = rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^"\r\n' + between + rb"]*+)"
    return re.compile(field + rb"(?:" + between + field + rb")*+\r?\n")
