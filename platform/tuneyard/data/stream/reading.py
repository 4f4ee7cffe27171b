"""The records of one split, with their places. In a file that is cut by lines, the place of a row is its byte: `chats.jsonl:byte 4096`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import xxhash

from tuneyard.data.access import reading
from tuneyard.data.encoding import refuse_utf_16
from tuneyard.data.file_types import DataFile
from tuneyard.data.lines import BYTE_ORDER_MARK, LONGEST_ROW_BYTES, LongLine
from tuneyard.data.records import BadRow, Record, json_record, parquet_rows, read_records, text_record
from tuneyard.data.stream.forward import Rows
from tuneyard.data.stream.open_readers import READERS
from tuneyard.data.stream.splits import Piece, Split, is_cut_by_lines, is_read_forward

_BLOCK = 1 << 20
_TAIL = 32 << 10
_AT_ONCE = 16


class SplitData:
    """The content of a split. Pieces of files that are cut by lines are read in the constructor.

    Pieces of files without random access are read once, when they are needed: pieces used in order are read in order. Other files are read
    by `records`.
    """

    def __init__(self, files: Sequence[DataFile], split: Split) -> None:
        """Raises BadInput for a file that has changed since it was listed, StorageError where it cannot be read."""
        self._files = files
        self._pieces = split.pieces
        for file in {piece.file for piece in split.pieces}:
            files[file].check_unchanged()
        cut = [piece for piece in split.pieces if is_cut_by_lines(files[piece.file])]
        self._lines = dict(zip(cut, _side_by_side(lambda piece: _lines_of(files[piece.file], piece), cut), strict=True))

        self._rows: dict[Piece, Rows] = {}

    @property
    def read_bytes(self) -> int:
        """Decompressed bytes; estimated for small compressed files."""
        return sum(self._size(piece) for piece in self._pieces)

    def _size(self, piece: Piece) -> int:
        if piece in self._lines:
            return len(self._lines[piece][1])
        return self._forward(piece).size_bytes if self._is_forward(piece) else piece.size_bytes

    def _is_forward(self, piece: Piece) -> bool:
        return piece.end > 0 and is_read_forward(self._files[piece.file])

    def _forward(self, piece: Piece) -> Rows:
        if piece not in self._rows:
            self._rows[piece] = READERS.take(self._files[piece.file], piece.start, piece.end)
        return self._rows[piece]

    def content(self) -> str:
        """A hash of the content and of its type. For a file that is read by `records` only: of its identity and the piece."""
        digest = xxhash.xxh3_128()
        for piece in self._pieces:
            file = self._files[piece.file]
            if piece in self._lines:
                data = self._lines[piece][1]
                marked = piece.start == 0 and data.startswith(BYTE_ORDER_MARK)  # elsewhere the same bytes are text
                digest.update(f"{file.reader} {len(data)} {marked}|".encode())
                digest.update(data)
            elif self._is_forward(piece):
                rows = self._forward(piece)
                digest.update(f"{file.reader} {rows.size_bytes} {piece.start == 0}|".encode())
                for block in rows.blocks():
                    digest.update(block)
            else:
                digest.update(f"{file.reader} {_identity(file)} {piece.start} {piece.end}|".encode())
        return digest.hexdigest()

    def records(self, line: int | None = None) -> Iterator[Record | BadRow]:
        """The rows of the split. `line`: the number of its first line; None: the place of a row is its byte.

        Raises as `read_records`.
        """
        for piece in self._pieces:
            file = self._files[piece.file]
            if piece in self._lines:
                yield from _records(file, *self._lines[piece], line if line is None or piece.start else 1)
            elif self._is_forward(piece):
                yield from self._forward(piece).records()
            elif piece.end:
                with reading(file.uri):
                    yield from parquet_rows(file, range(piece.start, piece.end))
            else:
                yield from read_records([file])

    def last_line(self, line: int) -> int:
        """The number of the line after the split. `line`: the number of its first line."""
        last = self._pieces[-1]
        data = self._lines[last][1] if last in self._lines else b""
        cut = bool(data) and not data.endswith(b"\n")  # the end of a line that exceeds the limit of rows
        return (1 if last.start == 0 else line) + data.count(b"\n") + cut


def way_to(files: Sequence[DataFile], split: Split) -> int:
    """Bytes that this process must skip before it can read a split."""
    first = split.pieces[0]
    return READERS.way(files[first.file], first.start) if first.end > 0 and is_read_forward(files[first.file]) else 0


@lru_cache(maxsize=1024)
def _identity(file: DataFile) -> str:
    """The identity of a file, hashed once for all its splits. Each split compares the file with the listing anyway."""
    return file.identity()


def _side_by_side(read: Callable[[Piece], tuple[int, bytes]], pieces: Sequence[Piece]) -> list[tuple[int, bytes]]:
    """Read pieces concurrently, so that many small pieces of a remote store take as long as a few."""
    if len(pieces) == 1:
        return [read(pieces[0])]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(read, pieces))


def _lines_of(file: DataFile, piece: Piece) -> tuple[int, bytes]:
    """Place and bytes of the lines that begin in [start, end). A line that exceeds the limit of rows is cut.

    It takes one request where the last line ends within _TAIL bytes after the piece.
    """
    with reading(file.uri), file.open_raw() as stream:
        begin = max(0, piece.start - 1)
        stream.seek(begin)
        data, size = _whole(stream.read, piece.end - begin + _TAIL), piece.end - begin
        if piece.start:
            newline = data.find(b"\n", 0, size)
            if newline < 0:
                return piece.end, b""
            data, begin, size = data[newline + 1 :], begin + newline + 1, size - newline - 1
        if not size:
            return begin, b""
        end = data.find(b"\n", size - 1)
        if end < 0 and len(data) > size:
            data += _rest_of_line(stream.read)
            end = data.find(b"\n", size - 1)
        return begin, data if end < 0 else data[: end + 1]


def _whole(read: Callable[[int], bytes], size: int) -> bytes:
    parts = []
    while size > 0 and (part := read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _rest_of_line(read: Callable[[int], bytes]) -> bytes:
    parts: list[bytes] = []
    held, block = 0, 2 * _TAIL
    while held <= LONGEST_ROW_BYTES and (part := read(block)):
        parts.append(part)
        held, block = held + len(part), min(2 * block, _BLOCK)
        if b"\n" in part:
            break
    return b"".join(parts)


def _records(file: DataFile, begin: int, data: bytes, first: int | None) -> Iterator[Record | BadRow]:
    """Rows of lines. `first`: the number of the first line; None: the place of a row is its byte."""
    place = begin
    if begin == 0:
        refuse_utf_16(file, data[:4096])
    for count, whole in enumerate(_split_lines(data)):
        at, place = place, place + len(whole)
        line = whole.removeprefix(BYTE_ORDER_MARK) if at == 0 else whole
        if not line.strip():
            continue
        name = f"{file.uri}:byte {at}" if first is None else f"{file.uri}:{first + count}"
        row = LongLine(len(line), line[:64]) if len(line) > LONGEST_ROW_BYTES else line
        yield json_record(file, name, row, first=at == 0) if file.kind == "jsonl" else text_record(file, name, row)


def _split_lines(data: bytes) -> Iterator[bytes]:
    """Lines with their ends. Only \\n ends a line: JSON may contain other line separators."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end
