"""A sample of the rows of a data set that is too large to inspect whole. Its places are spread evenly over the bytes of all files; a seed
draws them.

At each place of a text file, all lines that begin in one block are read, so that every line has the same chance. In a Parquet file, the
first rows of the row group at the place are read. Compressed and Arrow files are read from their front, JSON arrays whole: they have no
random access.
"""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import IO, Any

from tuneyard.data.access import reading
from tuneyard.data.csv_rows import header_of, whole_rows
from tuneyard.data.decompression import decompressed
from tuneyard.data.encoding import Decoded
from tuneyard.data.file_types import DataFile
from tuneyard.data.lines import BYTE_ORDER_MARK, LONGEST_ROW_BYTES, LongLine, bounded_lines, lines_of
from tuneyard.data.records import (
    BadRow,
    Record,
    arrow_batches,
    batch_records,
    csv_records,
    json_record,
    parquet_file,
    read_records,
    row_group_records,
    text_record,
)

PLACES, BLOCK_BYTES = 256, 128 << 10
SEED = 0
_BLOCKS_AT_ONCE = 16
_SIP_BYTES = 4096
_MOST_ROWS = 1_000
"""Maximum number of rows at one place of a columnar file."""

Row = Record | BadRow


@dataclass(frozen=True)
class _Block:
    """Lines that begin in one block, each with the offset of its first byte."""

    file: DataFile
    lines: list[tuple[int, bytes | LongLine]]


@dataclass
class RowSample:
    """One pass over a sample of `files`. Estimates for the whole are valid after the pass."""

    files: Sequence[DataFile]
    seed: int = SEED
    read_bytes: int = 0
    places: int = 0
    """Completed places, of `PLACES`."""
    _rows: Counter[str] = field(default_factory=Counter)
    _bytes: Counter[str] = field(default_factory=Counter)
    """By type of file: rows that were read, and the bytes of files for which they stand."""

    _headers: dict[str, tuple[list[str], str]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Row]:
        for text, group in groupby(self._places(), key=lambda place: _in_blocks(place[0])):
            if text:
                yield from self._blocks([(file, offset) for file, offsets in group for offset in offsets])
                continue
            for file, offsets in group:
                with reading(file.uri):
                    yield from self._counted(file, self._part(file, offsets))
                self.places += len(offsets)

    def estimated_rows(self) -> int:
        """Estimated rows of all files, including bad rows."""
        total: Counter[str] = Counter()
        for file in self.files:
            total[_type(file)] += file.size_bytes
        known = {kind: self._rows[kind] / self._bytes[kind] for kind in total if self._bytes[kind]}
        mean = sum(self._rows.values()) / max(1, sum(self._bytes.values()))
        return max(sum(self._rows.values()), round(sum(size * known.get(kind, mean) for kind, size in total.items())))

    def _places(self) -> Iterator[tuple[DataFile, list[int]]]:
        """Files with the offsets of their places, in order: the first byte of all, then one random place in each of PLACES equal parts."""
        drawn, total = random.Random(self.seed), sum(file.size_bytes for file in self.files)
        places = [0, *(int((number + drawn.random()) * total / PLACES) for number in range(1, PLACES))]
        before, next_place = 0, 0
        for file in self.files:
            here = []
            while next_place < len(places) and places[next_place] < before + file.size_bytes:
                here.append(places[next_place] - before)
                next_place += 1
            before += file.size_bytes
            if here:
                yield file, here

    def _counted(self, file: DataFile, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            self._rows[_type(file)] += row.count if isinstance(row, BadRow) else 1
            yield row

    def _stands_for(self, file: DataFile, size_bytes: int, *, read_bytes: int | None = None) -> None:
        self._bytes[_type(file)] += size_bytes
        self.read_bytes += size_bytes if read_bytes is None else read_bytes

    # --- lines

    def _blocks(self, places: list[tuple[DataFile, int]]) -> Iterator[Row]:
        """Rows of uncompressed text files. Blocks of objects are requested several at a time."""
        threads = _BLOCKS_AT_ONCE if any(not file.is_local for file, _ in places) else 1
        with ThreadPoolExecutor(threads) as pool:
            last = ("", -1)
            for start in range(0, len(places), threads):
                for block in pool.map(_block, places[start : start + threads]):
                    if last[0] == block.file.uri:  # two places may be closer than a block
                        block = _Block(block.file, [each for each in block.lines if each[0] > last[1]])
                    if block.file.kind == "csv":
                        block = self._whole_csv_rows(block)
                    if block.lines:
                        last = (block.file.uri, block.lines[-1][0])
                    self._stands_for(block.file, sum(_size(line) for _, line in block.lines))
                    yield from self._counted(block.file, self._block_rows(block))
                    self.places += 1

    def _block_rows(self, block: _Block) -> Iterator[Row]:
        """Rows of a block. Rows at the front of a file have line numbers; others have offsets, as lines before them are not counted."""
        file, offsets = block.file, [offset for offset, _ in block.lines]
        if offsets[:1] == [0]:
            yield from _line_rows(file, (line for _, line in block.lines))
        elif file.kind == "csv":
            header, delimiter = self._header(file)
            inside = Decoded(line for _, line in block.lines)
            yield from csv_records(file, inside, header, delimiter, lambda line: f"{file.uri}:byte {offsets[line - 1]}")
        else:
            make = _maker(file)
            for offset, line in block.lines:
                if isinstance(line, LongLine) or line.strip():
                    yield make(file, f"{file.uri}:byte {offset}", line)

    def _whole_csv_rows(self, block: _Block) -> _Block:
        if not block.lines or block.lines[0][0] == 0:
            return block
        header, delimiter = self._header(block.file)
        texts = [line.decode(errors="replace") if isinstance(line, bytes) else "" for _, line in block.lines]
        begin, end = whole_rows(texts, len(header), delimiter)
        return _Block(block.file, block.lines[begin:end])

    def _header(self, file: DataFile) -> tuple[list[str], str]:
        if file.uri not in self._headers:
            with reading(file.uri), file.open() as stream:
                self._headers[file.uri] = header_of(file, Decoded(bounded_lines(stream)))[:2]
        return self._headers[file.uri]

    # --- from the front, or by row groups

    def _part(self, file: DataFile, offsets: list[int]) -> Iterator[Row]:
        if file.kind == "parquet":
            return self._row_groups(file, offsets)
        if file.kind == "arrow":
            return self._batches(file, len(offsets) * _MOST_ROWS)
        if file.kind in ("json", "excel"):
            self._stands_for(file, file.size_bytes)
            return read_records([file])
        return self._front(file, len(offsets) * BLOCK_BYTES)

    def _row_groups(self, file: DataFile, offsets: list[int]) -> Iterator[Row]:
        parquet = parquet_file(file, buffer_bytes=1 << 20)
        metadata = parquet.metadata
        if not metadata.num_rows:
            return
        row_bytes = file.size_bytes / metadata.num_rows
        unpacked = max(1.0, sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)) / metadata.num_rows)
        wanted = Counter(_row_group(metadata, offset / file.size_bytes) for offset in offsets)
        first = 0
        for group in range(metadata.num_row_groups):
            if group in wanted:
                most = wanted[group] * min(_MOST_ROWS, max(1, int(BLOCK_BYTES / unpacked)))
                rows = list(islice(row_group_records(file, parquet, group, first), most))
                self._stands_for(file, int(row_bytes * sum(row.count if isinstance(row, BadRow) else 1 for row in rows)))
                yield from rows
            first += metadata.row_group(group).num_rows

    def _batches(self, file: DataFile, most: int) -> Iterator[Row]:
        first = 0
        for batch in arrow_batches(file):
            part = batch.slice(0, most - first)
            self._stands_for(file, part.nbytes)
            yield from batch_records(file, part, first)
            first += part.num_rows
            if first >= most:
                return

    def _front(self, file: DataFile, most_bytes: int) -> Iterator[Row]:
        """The first lines of a compressed file. They stand for the compressed bytes that were read."""
        raw = file.open_buffered()
        sips: Any = _Sips(raw)
        with raw, decompressed(sips, file.compression) as stream:
            size = 0

            def lines() -> Iterator[bytes | LongLine]:
                nonlocal size
                for line in lines_of(file, stream):
                    size += _size(line)
                    yield line
                    if size > most_bytes:
                        return

            yield from _line_rows(file, lines())
            unpacked: Any = stream
            ahead = len(unpacked.peek())
            self._stands_for(file, int(min(raw.tell(), file.size_bytes) * size / (size + ahead or 1)), read_bytes=size)


class _Sips(io.RawIOBase):
    """A stream with small reads, so that its position shows how many bytes were needed."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._stream.read(min(size, _SIP_BYTES) if size >= 0 else _SIP_BYTES)


def _in_blocks(file: DataFile) -> bool:
    return file.kind in ("jsonl", "text", "csv") and not file.compression


def _type(file: DataFile) -> str:
    return f"{file.kind} {file.compression}"


def _size(line: bytes | LongLine) -> int:
    return line.size_bytes if isinstance(line, LongLine) else len(line)


def _row_group(metadata: Any, share: float) -> int:
    """The row group at a share of a file's bytes."""
    sizes = [metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)]
    left = share * sum(sizes)
    for group, size in enumerate(sizes):
        left -= size
        if left < 0:
            return group
    return len(sizes) - 1


def _line_rows(file: DataFile, lines: Iterator[bytes | LongLine]) -> Iterator[Row]:
    """Rows of a text file's first lines."""
    if file.kind == "csv":
        decoded = Decoded(lines)
        header, delimiter, above = header_of(file, decoded)
        rows = list(csv_records(file, decoded, header, delimiter, lambda line: f"{file.uri}:{line + above}"))
        yield from rows[:-1] if rows and isinstance(rows[-1], BadRow) else rows  # the last row may be cut
        return
    make = _maker(file)
    for number, line in enumerate(lines, start=1):
        if isinstance(line, LongLine) or line.strip():
            yield make(file, f"{file.uri}:{number}", line)


def _maker(file: DataFile) -> Callable[[DataFile, str, bytes | LongLine], Row]:
    return text_record if file.kind == "text" else json_record


def _block(place: tuple[DataFile, int]) -> _Block:
    """The lines that begin in the block at an offset. A line that is too long ends the block, because its end is unknown."""
    file, start = place
    found: list[tuple[int, bytes | LongLine]] = []
    with reading(file.uri), file.open_raw() as raw:
        stream: IO[bytes] = io.BufferedReader(raw, BLOCK_BYTES)  # type: ignore[type-var]
        at = stream.seek(max(0, start - 1))
        if start:
            at += len(skipped := stream.readline(LONGEST_ROW_BYTES))
            if not skipped.endswith(b"\n"):
                return _Block(file, [])
        while at < start + BLOCK_BYTES and (line := stream.readline(LONGEST_ROW_BYTES + 1)):
            if len(line) > LONGEST_ROW_BYTES and not line.endswith(b"\n"):
                found.append((at, LongLine(len(line), line[:64])))
                break
            found.append((at, line if at else line.removeprefix(BYTE_ORDER_MARK)))
            at += len(line)
    return _Block(file, found)
