"""Files of shards, whatever they hold: written once, whole or not at all, sealed by a hash of themselves, and removed to make room.

A file that was cut off or damaged is never taken for a shard. An open shard is mapped into memory and stays readable when its file is
removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from tuneyard.api import StorageError

_MARK = b"tuneyard-shard-1"
_HASH_BYTES = 16
_LEFTOVER_S = 3600.0
_KEPT_FREE_BYTES = 1 << 30
"""The disk's free space below which the oldest shards are removed before one is written."""


def open_sealed(path: Path) -> Any:
    """What a shard holds, as a `pyarrow.Buffer`. Raises OSError where there is no file, ValueError where it is damaged."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        tail = file.tell() - len(_MARK) - _HASH_BYTES
    if tail < 0:
        raise ValueError(f"{path} is damaged")
    with pa.memory_map(str(path)) as mapped:  # the map lives as long as what is read from it, and holds no descriptor
        content = mapped.read_buffer()
    whole = memoryview(content).cast("B")
    if whole[-len(_MARK) :] != _MARK or _hash(whole[:tail]) != whole[tail : tail + _HASH_BYTES]:
        raise ValueError(f"{path} is damaged")
    return content.slice(0, tail)


def write_sealed(path: Path, size_bytes: int, write: Callable[[Path], None]) -> None:
    """Have `write` make the content of a shard, which appears at `path` complete or not at all. `size_bytes`: about what it takes.

    Raises StorageError where the disk is full though all older shards beside it are gone.
    """
    beside = unfinished_name(path)
    try:
        with writing_shards(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            make_room(path.parent, size_bytes)
            while True:
                try:
                    write(beside)
                    _seal(beside)
                    break
                except OSError as error:
                    if error.errno != errno.ENOSPC or not _remove_oldest(path.parent):
                        raise
            beside.rename(path)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def unfinished_name(path: Path) -> Path:
    """A name beside a shard's that no other process or thread takes, while it is written."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")


@contextlib.contextmanager
def writing_shards(folder: Path) -> Iterator[None]:
    """Raises StorageError in place of an OSError."""
    try:
        yield
    except OSError as error:
        cause = f"a shard of training rows cannot be written to {folder}: {error.strerror or error}"
        raise StorageError(cause, "free some space, or set TUNEYARD_CACHE to another disk") from error


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed had begun to write an hour ago or before."""
    for path in folder.glob(".*.shard.*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _LEFTOVER_S:
                path.unlink()


def keep_newest(folder: Path, prefix: str, size_bytes: int) -> None:
    """Remove the shards with this prefix that were not opened for the longest time, until the others take no more than `size_bytes`."""
    found: list[tuple[float, int, Path]] = []
    for path in folder.glob(f"{prefix}*.shard"):
        with contextlib.suppress(FileNotFoundError):  # another process makes room too
            about = path.stat()
            found.append((about.st_mtime, about.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= size_bytes:
            return
        with contextlib.suppress(OSError):  # that of another user stays
            path.unlink(missing_ok=True)
        total -= size


def make_room(folder: Path, needed: int) -> None:
    """Remove old shards until the disk has room for `needed` bytes, as far as that helps."""
    while _free(folder) < needed + _KEPT_FREE_BYTES and _remove_oldest(folder):
        pass


def _seal(path: Path) -> None:
    with path.open("rb+") as file:
        digest = xxhash.xxh3_128()
        while block := file.read(1 << 20):
            digest.update(block)
        file.write(digest.digest() + _MARK)


def _hash(data: memoryview) -> bytes:
    return xxhash.xxh3_128(data).digest()


def _free(folder: Path) -> int:
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize


def _remove_oldest(folder: Path) -> bool:
    """Remove the shards that were not opened for the longest time: a tenth of all. False: there is none left, or none that may be
    removed."""
    by_age = sorted(_ages(folder).items(), key=lambda pair: pair[1])
    removed = 0
    for name, _ in by_age:
        with contextlib.suppress(OSError):  # that of another user stays
            (folder / name).unlink(missing_ok=True)
            removed += 1
        if removed == max(1, len(by_age) // 10):
            break
    return removed > 0


def _ages(folder: Path) -> Mapping[str, float]:
    found: dict[str, float] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".shard"):
                with contextlib.suppress(FileNotFoundError):  # another process makes room too
                    found[entry.name] = entry.stat().st_mtime
    return found
