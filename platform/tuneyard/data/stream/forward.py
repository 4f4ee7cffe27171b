"""Files that can only be read from their front, read piece by piece: the interface of their readers, and the reader of compressed lines.

A piece holds the rows whose first decompressed byte lies in [start, end). A reader stands after the last row that it gave. It reaches a
later piece by reading on, which takes little time compared with tokenising, and an earlier piece by starting again. Each process keeps some
readers open (`open_readers`), so that it reads each file about once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Protocol

import pyarrow as pa

from tuneyard.api import BadInput
from tuneyard.api.quoting import quoted
from tuneyard.data.encoding import refuse_utf_16
from tuneyard.data.file_types import DataFile
from tuneyard.data.lines import BYTE_ORDER_MARK, LONGEST_ROW_BYTES, LongLine, broken_off
from tuneyard.data.records import BadRow, Record, json_record, text_record

OPEN_END = 1 << 62
"""The end of a file's last piece, which holds all remaining rows."""
_BLOCK = 1 << 20
_LARGEST_PIECE_BYTES = 1 << 30
"""Limit of a piece, which is held in memory as a whole. Where the size of a file was estimated well, its pieces hold at most 64 MiB."""
REQUEST_BYTES = 2 << 20
"""Size of one request to a store. It is small because a process may have dozens of files open."""


class Rows(Protocol):
    """The rows of one piece, in memory."""

    @property
    def size_bytes(self) -> int: ...

    def blocks(self) -> Iterator[bytes] | Iterator[memoryview]:
        """The bytes that determine the rows, for a hash."""

    def records(self) -> Iterator[Record | BadRow]: ...


class Reader(Protocol):
    """One pass over a file."""

    covered: int
    """All rows that begin before this place were given or skipped."""

    def take(self, start: int, end: int) -> Rows:
        """The rows that begin in [start, end); `start` must be at least `covered`. Raises BadInput where the data are truncated."""


@dataclass
class Lines:
    """Whole lines with their ends, joined to blocks, and skipped lines that are too long. `line`: the number of the first line."""

    file: DataFile
    begin: int
    line: int
    parts: list[bytes | LongLine] = field(default_factory=list)
    size_bytes: int = 0
    held_bytes: int = 0
    """Bytes in memory, without skipped lines."""

    def add(self, part: bytes | LongLine) -> None:
        """Add a part. Raises BadInput where the piece exceeds its limit: a last piece, of a file far larger than its start suggested."""
        self.parts.append(part)
        self.size_bytes += len(part) if isinstance(part, bytes) else part.size_bytes
        self.held_bytes += len(part) if isinstance(part, bytes) else 0
        if self.held_bytes > _LARGEST_PIECE_BYTES:
            raise _packs_too_well(self.file)

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


def _packs_too_well(file: DataFile) -> BadInput:
    name = PurePosixPath(file.path).name
    read = {"": "cat", "gzip": "zcat", "zstd": "zstdcat", "bz2": "bzcat"}[file.compression]
    plain = name.removesuffix(PurePosixPath(name).suffix) if file.compression else f"plain-{name}"
    return BadInput(
        f"{file.uri}: its end compresses much better than its start, so one piece exceeds {_LARGEST_PIECE_BYTES >> 20:,} MiB",
        f"decompress it ({read} {quoted(name)} > {quoted(plain)}): uncompressed files are cut anywhere",
    )


class LineReader:
    """Lines of a compressed file."""

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self._stream = file.open(REQUEST_BYTES)
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
        """Skip to the first line that begins at or after `start`."""
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
