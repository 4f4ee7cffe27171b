"""CSV read piece by piece: a row belongs to the piece in which its first byte lies, wherever the line breaks in its fields lie."""

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
"""Below LONGEST_ROW_BYTES: no row in it is too long."""


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
        opened: Any = file.open(REQUEST_BYTES)
        self._stream = io.BufferedReader(opened, _BUFFER_BYTES)
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
