"""A content-addressed cache of folders: complete or absent, built once however many processes ask, rebuilt if damaged.

An entry's name is a hash of everything its content depends on. It is built in a folder beside it, gets a manifest with sizes and hashes of
its files, and is renamed into place. Whoever opens it compares both; of files above 1 GiB, 64 parts of 1 MiB are hashed, the first and the
last among them. Entries are never changed, so deleting any of them (or all) is always safe.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import xxhash

from tuneyard.api import StorageError

MANIFEST = "entry.json"
_HASHED_WHOLE_BYTES = 1 << 30
_PARTS, _BLOCK_BYTES = 64, 1 << 20


def cache_root(cache_dir: str | Path | None = None) -> Path:
    """Where caches live: `cache_dir`, else $TUNEYARD_CACHE, else ~/.cache/tuneyard."""
    return Path(cache_dir or os.environ.get("TUNEYARD_CACHE") or Path.home() / ".cache" / "tuneyard").expanduser()


def cached_folder(
    root: Path, key: Mapping[str, Any], build: Callable[[Path], None], *, on_wait: Callable[[], None] = lambda: None
) -> tuple[Path, bool]:
    """The folder for `key`, and whether it was there already. `build` fills an empty folder; if it raises, nothing is kept.

    One process builds, the others wait for it (`on_wait` is called once before). Raises StorageError if the disk is full or not writable.
    """
    from filelock import FileLock, Timeout

    text = json.dumps(key, sort_keys=True, default=str)
    entry = root / sha256(text.encode()).hexdigest()[:32]
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{entry}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            on_wait()
            lock.acquire()
        try:
            if _complete(entry):
                return entry, True
            _build(entry, text, build)
            return entry, False
        finally:
            lock.release()
    except OSError as error:
        cause = f"the cache {root} cannot be written: {error.strerror or error}"
        raise StorageError(cause, "free some space, or set TUNEYARD_CACHE to another disk") from error


def _complete(entry: Path) -> bool:
    try:
        files = json.loads((entry / MANIFEST).read_text())["files"]
        return all(_facts(entry / name) == facts for name, facts in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _facts(path: Path) -> list[Any]:
    """Size and hash of a file."""
    size = path.stat().st_size
    digest = xxhash.xxh3_128()
    with path.open("rb") as stream:
        if size <= _HASHED_WHOLE_BYTES:
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
        else:
            for part in range(_PARTS):
                stream.seek((size - _BLOCK_BYTES) * part // (_PARTS - 1))
                digest.update(stream.read(_BLOCK_BYTES))
    return [size, digest.hexdigest()]


def _build(entry: Path, key: str, build: Callable[[Path], None]) -> None:
    shutil.rmtree(entry, ignore_errors=True)  # there, but not complete: damaged
    unfinished = entry.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed: the lock says that nobody else is at work here
    unfinished.mkdir()
    try:
        build(unfinished)
        files = {str(p.relative_to(unfinished)): _facts(p) for p in sorted(unfinished.rglob("*")) if p.is_file()}
        (unfinished / MANIFEST).write_text(json.dumps({"files": files, "key": json.loads(key)}, indent=1))
        unfinished.rename(entry)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
