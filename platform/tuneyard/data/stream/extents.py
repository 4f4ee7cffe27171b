"""How many bytes of rows the files of a data set hold: what a listing tells, and for compressed files a bounded look at some of them.

A file's own word is taken where it has one: the last four bytes of gzip, the frame header of zstd. Both say nothing of what else was
appended, so they count only where the first MiB agrees. Files that are surely no larger than a split are not opened at all.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from tuneyard.data.access import reading
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
_GZIP_TURN = 1 << 32
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes of rows in a file, decompressed. `bound`: bytes up to which it is cut; it hardly ever holds more."""

    size_bytes: int
    bound: int


@dataclass(frozen=True, slots=True)
class _Look:
    ratio: float
    """Bytes of rows for each byte of the file."""
    told: bool
    """Whether the file itself says how much it holds."""

    def extent(self, file: DataFile) -> Extent:
        size = max(1, round(file.size_bytes * self.ratio))
        return Extent(size, round(size * (_SLACK_OF_TOLD if self.told else _SLACK_OF_GUESSED)))


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
    return _Look(max(ratios, default=_USUAL_RATIO), alike)


def _look(file: DataFile) -> _Look:
    with reading(file.uri), file.open_raw() as stream:
        head = stream.read(_HEAD_BYTES)
        holds, of = _holds(head, file)
        if not holds:
            return _Look(_USUAL_RATIO, False)  # whoever reads the rows says what is wrong
        ratio = holds / of
        if of == file.size_bytes:
            return _Look(ratio, True)
        told = _told(file, head, ratio, stream)
        if ratio / _AGREES < told / file.size_bytes < ratio * _AGREES:
            return _Look(told / file.size_bytes, True)
        return _Look(ratio, False)


def _holds(head: bytes, file: DataFile) -> tuple[int, int]:
    """Bytes that a file's start holds, decompressed, and of how many bytes of it. It may break off anywhere."""
    found, source = 0, io.BytesIO(head)
    try:
        stream = pa.CompressedInputStream(pa.PythonFile(source, "r"), file.compression)
        while block := stream.read(_BLOCK):
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
