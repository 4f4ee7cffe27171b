"""The bytes of rows in each file of a data set: from the listing, and for compressed files from a bounded look at some of them.

A compressed file may state its size: in the last four bytes of gzip, in the frame header of zstd. Neither counts data that was appended
later, so a stated size well below the estimate from the first MiB is not trusted. A larger stated size is trusted up to the limit of the
compression: the start then differs from the rest. Files that are surely no larger than a split are not opened.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tuneyard.data.access import reading
from tuneyard.data.decompression import decompressed
from tuneyard.data.file_types import DataFile

_USUAL_RATIO = 4.0
"""Compression ratio of text with gzip; zstd's is a little higher."""
_NOT_LOOKED_AT = 8
"""A compressed file is not opened, and not cut, where its size times this is no larger than a split."""
_LOOKS = 16
"""Maximum number of opened files per type and compression. The others are assumed to be like them."""
_HEAD_BYTES, _HEAD_HOLDS_BYTES, _BLOCK = 1 << 20, 64 << 20, 64 << 10
_SLACK_OF_TOLD, _SLACK_OF_GUESSED = 1.1, 1.5
_AGREES = 1.5
_PACKS_AT_MOST = {"gzip": 1040.0, "zstd": 40_000.0}
"""Maximum bytes of rows per byte of a file: deflate's limit, 258 bytes in 2 bits, and zstd's ratio for a run of one byte."""
_GZIP_TURN = 1 << 32
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class Extent:
    """Decompressed bytes of rows in a file. `bound`: the file is cut up to this byte, and very rarely holds more."""

    size_bytes: int
    bound: int


@dataclass(frozen=True, slots=True)
class _Look:
    """Decompressed bytes per byte of a file. `ratio`: the estimate; `most`: the value for `Extent.bound`."""

    ratio: float
    most: float

    @classmethod
    def guessed(cls, ratio: float, slack: float = _SLACK_OF_GUESSED) -> _Look:
        return cls(ratio, ratio * slack)

    def extent(self, file: DataFile) -> Extent:
        size = max(1, round(file.size_bytes * self.ratio))
        return Extent(size, max(size, round(file.size_bytes * self.most)))


def extents(files: Sequence[DataFile], split_bytes: int) -> list[Extent]:
    """The extent of each file. Raises BadInput and StorageError where a file that is opened cannot be read."""
    found = [Extent(file.size_bytes, file.size_bytes) for file in files]
    groups: dict[tuple[str, str], list[int]] = {}
    for number, file in enumerate(files):
        if file.compression:
            groups.setdefault((file.kind, file.compression), []).append(number)
    for numbers in groups.values():
        large = [number for number in numbers if files[number].size_bytes * _NOT_LOOKED_AT > split_bytes]
        chosen = sorted({large[len(large) * place // _LOOKS] for place in range(_LOOKS)}) if large else []
        looks = dict(zip(chosen, _looks([files[number] for number in chosen]), strict=True))
        others = _like(looks.values())
        for number in numbers:
            found[number] = looks.get(number, others).extent(files[number])
    return found


def _looks(files: Sequence[DataFile]) -> list[_Look]:
    if all(file.is_local for file in files):
        return [_look(file) for file in files]
    with ThreadPoolExecutor(_LOOKS, thread_name_prefix="look") as threads:
        return list(threads.map(_look, files))


def _like(looks: Iterable[_Look]) -> _Look:
    """The assumption for files that are not opened: the highest ratio among `looks`."""
    ratios = [look.ratio for look in looks]
    alike = bool(ratios) and max(ratios) <= _SLACK_OF_TOLD * min(ratios)
    return _Look.guessed(max(ratios, default=_USUAL_RATIO), _SLACK_OF_TOLD if alike else _SLACK_OF_GUESSED)


def _look(file: DataFile) -> _Look:
    with reading(file.uri), file.open_raw() as stream:
        head = stream.read(_HEAD_BYTES)
        holds, of = _holds(head, file)
        if not holds:
            return _Look.guessed(_USUAL_RATIO)  # the reader of rows reports the fault
        ratio = holds / of
        if of == file.size_bytes:
            return _Look.guessed(ratio, _SLACK_OF_TOLD)
        told = _told(file, head, ratio, stream) / file.size_bytes
    return _believed(told, ratio, file.compression, file.size_bytes)


def _believed(told: float, ratio: float, compression: str, size: int) -> _Look:
    """Combine a file's stated size (`told`) with the `ratio` of its start; both in decompressed bytes per byte. `size`: file size."""
    if not ratio / _AGREES < told < _PACKS_AT_MOST.get(compression, 0):
        return _Look.guessed(ratio)
    # Above 4 GiB, the stated size of a gzip file with many members may match the estimate by chance.
    sure = compression != "gzip" or told * size < _GZIP_TURN
    return _Look(told, max(told * _SLACK_OF_TOLD, ratio * (_SLACK_OF_TOLD if sure else _SLACK_OF_GUESSED)))


def _holds(head: bytes, file: DataFile) -> tuple[int, int]:
    """Decompressed bytes of a file's start, and the compressed bytes that hold them. The start may be cut anywhere."""
    found, source = 0, io.BytesIO(head)
    try:
        stream: Any = decompressed(source, file.compression)
        while block := stream.read1(_BLOCK):  # data before a cut are returned before the error
            found += len(block)
            if found >= _HEAD_HOLDS_BYTES:
                return found, source.tell()
    except (pa.ArrowException, EOFError, OSError):
        pass
    return found, len(head)


def _told(file: DataFile, head: bytes, ratio: float, stream: io.IOBase | object) -> int:
    """The decompressed size that a file states; 0 where it states none."""
    if file.compression == "gzip":  # RFC 1952: the size of the last member, modulo 2^32
        stream.seek(file.size_bytes - 4)  # type: ignore[union-attr]
        rest = int.from_bytes(stream.read(4), "little")  # type: ignore[union-attr]
        return int(rest + max(0, round((ratio * file.size_bytes - rest) / _GZIP_TURN)) * _GZIP_TURN)
    return _zstd_frame_size(head) if file.compression == "zstd" else 0


def _zstd_frame_size(head: bytes) -> int:
    """The content size in a zstd frame header (RFC 8878, 3.1.1.1); 0 where there is none."""
    if not head.startswith(_ZSTD_MAGIC) or len(head) < 18:
        return 0
    described = head[4]
    kind, single = described >> 6, described >> 5 & 1
    start = 5 + (not single) + (0, 1, 2, 4)[described & 3]
    width = (single, 2, 4, 8)[kind]
    return int.from_bytes(head[start : start + width], "little") + (256 if kind == 1 else 0)
