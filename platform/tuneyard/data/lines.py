"""Lines of a text file in bounded memory. A line that is longer than any sample is skipped and reported."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from tuneyard.api import BadInput
from tuneyard.api.quoting import quoted
from tuneyard.data.encoding import refuse_utf_16
from tuneyard.data.file_types import DataFile

LONGEST_ROW_BYTES = 64 << 20
"""Limit of a row, far above any sample that can be trained on. A gzip file of 4 MB can hold a line of 4 GB."""
ONE_ARRAY = "one row a line; a file that is one JSON array is named .json"
_SKIPPED_BYTES = 1 << 20
_LARGEST_WHOLE_BYTES = 1 << 30
"""Limit of a JSON array. Its rows take five to ten times as much memory, and the whole array is parsed before its first row."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line of more than LONGEST_ROW_BYTES that was skipped. `start`: its first bytes."""

    size_bytes: int
    start: bytes

    @property
    def reason(self) -> str:
        return f"a row of {self.size_bytes / (1 << 20):,.0f} MiB; rows of more than {LONGEST_ROW_BYTES >> 20} MiB are skipped"

    @property
    def advice(self) -> str:
        return ONE_ARRAY if self.start.lstrip().startswith(b"[") else ""


def lines_of(file: DataFile, stream: IO[bytes]) -> Iterator[bytes | LongLine]:
    """Lines without a byte order mark. Raises BadInput for UTF-16, and where compressed data break off."""
    count = 0
    try:
        for line in bounded_lines(stream):
            count += 1
            if count == 1:
                refuse_utf_16(file, line if isinstance(line, bytes) else line.start)
                line = line.removeprefix(BYTE_ORDER_MARK) if isinstance(line, bytes) else line
            yield line
    except (pa.ArrowException, EOFError, OSError) as error:
        raise broken_off(file, f":{count + 1}", error) from error


def whole_of(file: DataFile, stream: IO[bytes]) -> bytes:
    """All bytes of a file, without a byte order mark. Raises BadInput as `lines_of` does, and for more than 1 GiB."""
    try:
        content = b"" if not file.compression and file.size_bytes > _LARGEST_WHOLE_BYTES else stream.read(_LARGEST_WHOLE_BYTES + 1)
    except (pa.ArrowException, EOFError, OSError) as error:
        raise broken_off(file, "", error) from error
    if max(len(content), 0 if file.compression else file.size_bytes) > _LARGEST_WHOLE_BYTES:
        raise _too_large(file)
    refuse_utf_16(file, content[:64])
    return content.removeprefix(BYTE_ORDER_MARK)


def _too_large(file: DataFile) -> BadInput:
    read = {"": "cat", "gzip": "zcat", "zstd": "zstdcat", "bz2": "bzcat"}[file.compression]
    source = quoted(file.path) if file.is_local else "FILE.json"
    size = f"more than {_LARGEST_WHOLE_BYTES >> 30} GiB"
    return BadInput(
        f"{file.uri}: a JSON array of {size}, which can only be read as a whole",
        f"write one object per line: {read} {source} | jq -cn --stream 'fromstream(1|truncate_stream(inputs))' > rows.jsonl",
    )


def broken_off(file: DataFile, place: str, error: Exception) -> Exception:
    """The exception to raise where a file's stream fails: BadInput for a compressed file, else the error itself."""
    if not file.compression:
        return error
    return BadInput(f"{file.uri}{place}: the compressed data breaks off here: {error}", "was the copy cut off? Make it again")


def bounded_lines(stream: IO[bytes]) -> Iterator[bytes | LongLine]:
    """Lines with their ends. A line that is too long becomes a `LongLine`."""
    limit = LONGEST_ROW_BYTES + 1
    raw: Any = stream
    lines: IO[bytes] = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw, 1 << 20)
    while line := lines.readline(limit):
        if len(line) < limit or line.endswith(b"\n"):
            yield line
        else:
            yield LongLine(len(line) + _skipped(lines), line[:64])


def _skipped(lines: IO[bytes]) -> int:
    """Skip to the end of the line, and return the number of skipped bytes."""
    skipped = 0
    while piece := lines.readline(_SKIPPED_BYTES):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped
