"""A content-addressed cache of folders: complete or absent, built once however many processes ask, rebuilt if damaged.

An entry's name is a hash of everything its content depends on. It is built in a folder beside it, gets a manifest with sizes and hashes of
its files, and is renamed into place. Whoever opens it compares both; of files above 1 GiB, 64 parts of 1 MiB are hashed, the first and the
last among them. Entries are never changed, so deleting any of them (or all) is always safe.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import xxhash

from tuneyard.api import StorageError

MANIFEST = "entry.json"
_HASHED_WHOLE_BYTES = 1 << 30
_PARTS, _BLOCK_BYTES = 64, 1 << 20
_HOLDER = ".holder"
"""In an unfinished folder: who builds it."""
_POLL_S = 0.2
PATIENCE_S = 300.0
"""So long another process may build without writing a byte before it is taken for stopped."""


def cache_root(cache_dir: str | Path | None = None) -> Path:
    """Where caches live: `cache_dir`, else $TUNEYARD_CACHE, else ~/.cache/tuneyard."""
    return Path(cache_dir or os.environ.get("TUNEYARD_CACHE") or Path.home() / ".cache" / "tuneyard").expanduser()


def cached_folder(
    root: Path, key: Mapping[str, Any], build: Callable[[Path], None], *, on_wait: Callable[[str], None] = lambda _: None
) -> tuple[Path, bool]:
    """The folder for `key`, and whether it was there already. `build` fills an empty folder; if it raises, nothing is kept.

    One process builds, the others wait for it. `on_wait` is called once before, with the builder: `process 4711 of HOST`. A stopped
    builder (Ctrl-Z) does not block them: after PATIENCE_S without growth of its folder another process builds too, and the first that is
    done counts. A complete folder is found without permission to write. Raises StorageError if the disk is full or not writable.
    """
    text = json.dumps(key, sort_keys=True, default=str)
    entry = root / sha256(text.encode()).hexdigest()[:32]
    try:
        if _complete(entry):
            return entry, True
        root.mkdir(parents=True, exist_ok=True)
        return entry, _locked(entry, text, build, on_wait)
    except OSError as error:
        cause = f"the cache {root} cannot be written: {error.strerror or error}"
        raise StorageError(cause, "free some space, or set TUNEYARD_CACHE to another disk") from error


def _locked(entry: Path, key: str, build: Callable[[Path], None], on_wait: Callable[[str], None]) -> bool:
    """Whether another process has made the entry; it is there afterwards. Turn 1 has a lock and a folder of its own, for processes whose
    patience with turn 0 has ended, and so on."""
    from filelock import FileLock

    for turn in count():
        unfinished = entry.with_suffix(f".{turn}.unfinished" if turn else ".unfinished")
        lock = FileLock(entry.with_suffix(f".{turn}.lock" if turn else ".lock"))
        there = _wait(entry, unfinished, lock, on_wait if turn == 0 else lambda _: None)
        if there:
            return True
        if not lock.is_locked:
            continue
        try:
            return _complete(entry) or _build(entry, unfinished, key, build)
        finally:
            lock.release()
    raise AssertionError("unreachable")


def _wait(entry: Path, unfinished: Path, lock: Any, on_wait: Callable[[str], None]) -> bool:
    """Wait until the lock is held here, the entry is complete (True), or patience with the holder has ended."""
    from filelock import Timeout

    told, grown_at, size, looked_at = False, time.monotonic(), _growth(unfinished), None
    while True:
        try:
            lock.acquire(timeout=_POLL_S, poll_interval=_POLL_S / 4)
            return False
        except Timeout:
            pass
        if not told:
            told = True
            on_wait(_holder(unfinished))
        manifest = _growth(entry)
        if manifest != looked_at and _complete(entry):
            return True
        looked_at = manifest
        if (now := _growth(unfinished)) != size:
            grown_at, size = time.monotonic(), now
        if time.monotonic() - grown_at > PATIENCE_S:
            return False


def _growth(folder: Path) -> Any:
    """Differs after each file that was made or written in a folder, which its builder may rename or remove at any moment."""
    found = []
    with contextlib.suppress(FileNotFoundError):  # of the walk itself
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                about = path.stat()
                found.append((str(path), about.st_size, about.st_mtime_ns))
    return sorted(found)


def _holder(unfinished: Path) -> str:
    try:
        return (unfinished / _HOLDER).read_text() or "another process"
    except OSError:
        return "another process"


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


def _build(entry: Path, unfinished: Path, key: str, build: Callable[[Path], None]) -> bool:
    """Build and put in place. True: another process was faster, and what was made here is dropped."""
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed: the lock says that no other one is at work here
    unfinished.mkdir()
    try:
        (unfinished / _HOLDER).write_text(f"process {os.getpid()} of {platform.node()}")
        build(unfinished)
        (unfinished / _HOLDER).unlink()
        files = {str(p.relative_to(unfinished)): _facts(p) for p in sorted(unfinished.rglob("*")) if p.is_file()}
        (unfinished / MANIFEST).write_text(json.dumps({"files": files, "key": json.loads(key)}, indent=1))
        return not _put(unfinished, entry)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _put(unfinished: Path, entry: Path) -> bool:
    """Rename into place. False: a complete entry is there."""
    while True:
        try:
            unfinished.rename(entry)
            return True
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if _complete(entry):
            return False
        shutil.rmtree(entry)  # damaged
