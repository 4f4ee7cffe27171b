"""How many bytes of rows the files of a data set hold: what a listing tells, and for compressed files a bounded look at some of them.

A file's own word is taken where it has one: the last four bytes of gzip, the frame header of zstd. Both say nothing of what else was
appended: a word below what the first MiB lets guess is not believed. One above is, as far as its compression can pack: then the start is
unlike the rest. Files that are surely no larger than a split are not opened at all.
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
"""Of text and gzip; zstd is a little above."""
_NOT_LOOKED_AT = 8
"""A compressed file times this is no larger than a split: it is not cut."""
_LOOKS = 16
"""Files of one type and compression that are opened. The others are taken to be like them."""
_HEAD_BYTES, _HEAD_HOLDS_BYTES, _BLOCK = 1 << 20, 64 << 20, 64 << 10
_SLACK_OF_TOLD, _SLACK_OF_GUESSED = 1.1, 1.5
_AGREES = 1.5
_PACKS_AT_MOST = {"gzip": 1040.0, "zstd": 40_000.0}
"""Bytes of rows for each byte of a file: deflate's limit, 258 bytes in 2 bits, and what zstd makes of a run of one byte."""
_GZIP_TURN = 1 << 32
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes of rows in a file, decompressed. `bound`: bytes up to which it is cut; it hardly ever holds more."""

    size_bytes: int
    bound: int


@dataclass(frozen=True, slots=True)
class _Look:
    """Bytes of rows for each byte of the file: `ratio` by estimate, `most` those up to which it is cut."""

    ratio: float
    most: float

    @classmethod
    def guessed(cls, ratio: float, slack: float = _SLACK_OF_GUESSED) -> _Look:
        return cls(ratio, ratio * slack)

    def extent(self, file: DataFile) -> Extent:
        size = max(1, round(file.size_bytes * self.ratio))
        return Extent(size, max(size, round(file.size_bytes * self.most)))


def extents(files: Sequence[DataFile], split_bytes: int) -> list[Extent]:
    """Of each file. Raises BadInput, StorageError where one that is looked at cannot be read."""
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
    """What is taken for a file that is not looked at: as the one among `looks` that packs best."""
    ratios = [look.ratio for look in looks]
    alike = bool(ratios) and max(ratios) <= _SLACK_OF_TOLD * min(ratios)
    return _Look.guessed(max(ratios, default=_USUAL_RATIO), _SLACK_OF_TOLD if alike else _SLACK_OF_GUESSED)


def _look(file: DataFile) -> _Look:
    with reading(file.uri), file.open_raw() as stream:
        head = stream.read(_HEAD_BYTES)
        holds, of = _holds(head, file)
        if not holds:
            return _Look.guessed(_USUAL_RATIO)  # whoever reads the rows says what is wrong
        ratio = holds / of
        if of == file.size_bytes:
            return _Look.guessed(ratio, _SLACK_OF_TOLD)
        told = _told(file, head, ratio, stream) / file.size_bytes
    return _believed(told, ratio, file.compression, file.size_bytes)


def _believed(told: float, ratio: float, compression: str, size: int) -> _Look:
    """What a file of `size` bytes tells of itself, beside the `ratio` of its start, both as bytes of rows for each of its bytes."""
    if not ratio / _AGREES < told < _PACKS_AT_MOST.get(compression, 0):
        return _Look.guessed(ratio)
    # Above 4 GiB a gzip file of many members says by chance what its start lets guess.
    sure = compression != "gzip" or told * size < _GZIP_TURN
    return _Look(told, max(told * _SLACK_OF_TOLD, ratio * (_SLACK_OF_TOLD if sure else _SLACK_OF_GUESSED)))


def _holds(head: bytes, file: DataFile) -> tuple[int, int]:
    """Bytes that a file's start holds, decompressed, and of how many bytes of it. It may break off anywhere."""
    found, source = 0, io.BytesIO(head)
    try:
        stream: Any = decompressed(source, file.compression)
        while block := stream.read1(_BLOCK):  # what lies before a break is given before its error
            found += len(block)
            if found >= _HEAD_HOLDS_BYTES:
                return found, source.tell()
    except (pa.ArrowException, EOFError, OSError):
        pass
    return found, len(head)


def _told(file: DataFile, head: bytes, ratio: float, stream: io.IOBase | object) -> int:
    """What the file says that it holds; 0 where it says nothing."""
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
