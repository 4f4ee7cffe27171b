"""Files of shards with any content: written once and atomically, sealed by a hash of their content, and removed to make room.

The seal detects truncated and damaged files. An open shard is memory-mapped, and stays readable after its file is removed.
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
"""With less free disk space than this, the oldest shards are removed before a write."""


def open_sealed(path: Path) -> Any:
    """The content of a shard as a `pyarrow.Buffer`. Raises OSError for a missing file, ValueError for a damaged one."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        tail = file.tell() - len(_MARK) - _HASH_BYTES
    if tail < 0:
        raise ValueError(f"{path} is damaged")
    with pa.memory_map(str(path)) as mapped:  # the map lives as long as the buffer, and holds no descriptor
        content = mapped.read_buffer()
    whole = memoryview(content).cast("B")
    if whole[-len(_MARK) :] != _MARK or _hash(whole[:tail]) != whole[tail : tail + _HASH_BYTES]:
        raise ValueError(f"{path} is damaged")
    return content.slice(0, tail)


def write_sealed(path: Path, size_bytes: int, write: Callable[[Path], None]) -> None:
    """Write a shard with `write`, seal it, and rename it to `path`. `size_bytes`: its approximate size.

    Raises StorageError where the disk is full even after all older shards in the folder were removed.
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
    """A unique name beside a shard's path, for the time of the write."""
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
    """Remove unfinished files of killed processes that are more than an hour old."""
    for path in folder.glob(".*.shard.*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _LEFTOVER_S:
                path.unlink()


def keep_newest(folder: Path, prefix: str, size_bytes: int) -> None:
    """Remove the least recently opened shards with this prefix until the rest take at most `size_bytes`. All names of a file count once."""
    found: dict[int, tuple[float, int, list[Path]]] = {}
    for path in folder.glob(f"{prefix}*.shard"):
        with contextlib.suppress(FileNotFoundError):  # another process makes room too
            about = path.stat()
            found.setdefault(about.st_ino, (about.st_mtime, about.st_size, []))[2].append(path)
    total = sum(size for _, size, _ in found.values())
    for _, size, names in sorted(found.values()):
        if total <= size_bytes:
            return
        for path in names:
            with contextlib.suppress(OSError):  # a shard of another user stays
                path.unlink(missing_ok=True)
        total -= size


def make_room(folder: Path, needed: int) -> None:
    """Remove old shards until the disk has room for `needed` bytes, or no shard can be removed."""
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
    """Remove the least recently opened tenth of all shards. False: there is no shard that may be removed."""
    by_age = sorted(_ages(folder).items(), key=lambda pair: pair[1])
    removed = 0
    for name, _ in by_age:
        with contextlib.suppress(OSError):  # a shard of another user stays
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
