"""A content-addressed cache of folders. An entry is complete or absent, is built once for all processes, and is rebuilt if damaged.

The name of an entry is a hash of all inputs of its content. The builder fills a folder beside the entry, adds a manifest with the sizes
and hashes of its files, and renames the folder into place. Each reader compares files with the manifest; of a file above 1 GiB, 64 parts
of 1 MiB are hashed, the first and the last among them. Entries never change, so deleting any of them is always safe.
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
"""File in an unfinished folder that names its builder."""
TOLD = ".told"
"""File in an unfinished folder for words of the builder to the processes that wait for it."""
_POLL_S = 0.2
PATIENCE_S = 300.0
"""A builder that writes no byte for this long counts as stopped."""


def cache_root(cache_dir: str | Path | None = None) -> Path:
    """The folder of all caches: `cache_dir`, else $TUNEYARD_CACHE, else ~/.cache/tuneyard."""
    return Path(cache_dir or os.environ.get("TUNEYARD_CACHE") or Path.home() / ".cache" / "tuneyard").expanduser()


def entry_of(root: Path, key: Mapping[str, Any]) -> Path:
    """The folder of an entry, whether or not it is there."""
    return root / sha256(_text_of(key).encode()).hexdigest()[:32]


def _text_of(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True, default=str)


def cached_folder(
    root: Path,
    key: Mapping[str, Any],
    build: Callable[[Path], None],
    *,
    on_wait: Callable[[str], None] = lambda _: None,
    on_told: Callable[[str], None] = lambda _: None,
) -> tuple[Path, bool]:
    """The folder for `key`, and whether it existed before. `build` fills an empty folder; if it raises, nothing is kept.

    One process builds while the others wait. `on_wait` is called once before a wait, with the builder: `process 4711 of HOST`; `on_told`
    with each content of TOLD that is seen. A stopped builder (Ctrl-Z) does not block the others: after PATIENCE_S without growth of its
    folder another process builds too, and the first to finish wins. A complete folder needs no permission to write. Raises StorageError if
    the disk is full or not writable.
    """
    entry, text = entry_of(root, key), _text_of(key)
    try:
        if _complete(entry):
            return entry, True
        root.mkdir(parents=True, exist_ok=True)
        return entry, _locked(entry, text, build, on_wait, on_told)
    except OSError as error:
        cause = f"the cache {root} cannot be written: {error.strerror or error}"
        raise StorageError(cause, "free some space, or set TUNEYARD_CACHE to another disk") from error


def _locked(entry: Path, key: str, build: Callable[[Path], None], on_wait: Callable[[str], None], on_told: Callable[[str], None]) -> bool:
    """Make sure that the entry exists; returns whether another process built it.

    Each turn has its own lock and folder. A process that has run out of patience with the builder of turn 0 goes on to turn 1, and so on.
    """
    from filelock import FileLock

    for turn in count():
        unfinished = entry.with_suffix(f".{turn}.unfinished" if turn else ".unfinished")
        lock = FileLock(entry.with_suffix(f".{turn}.lock" if turn else ".lock"))
        there = _wait(entry, unfinished, lock, on_wait if turn == 0 else lambda _: None, on_told)
        if there:
            return True
        if not lock.is_locked:
            continue
        try:
            return _complete(entry) or _build(entry, unfinished, key, build)
        finally:
            lock.release()
    raise AssertionError("unreachable")


def _wait(entry: Path, unfinished: Path, lock: Any, on_wait: Callable[[str], None], on_told: Callable[[str], None]) -> bool:
    """Wait until this process holds the lock, the entry is complete (True), or PATIENCE_S has passed without growth."""
    from filelock import Timeout

    told, grown_at, size, looked_at, words = False, time.monotonic(), _growth(unfinished), None, ""
    while True:
        try:
            lock.acquire(timeout=_POLL_S, poll_interval=_POLL_S / 4)
            return False
        except Timeout:
            pass
        if not told:
            told = True
            on_wait(_text(unfinished / _HOLDER) or "another process")
        if (now_told := _text(unfinished / TOLD)) and now_told != words:
            words = now_told
            on_told(words)
        manifest = _growth(entry)
        if manifest != looked_at and _complete(entry):
            return True
        looked_at = manifest
        if (now := _growth(unfinished)) != size:
            grown_at, size = time.monotonic(), now
        if time.monotonic() - grown_at > PATIENCE_S:
            return False


def _growth(folder: Path) -> Any:
    """A value that changes with every write in a folder. The builder may rename or remove the folder at any moment."""
    found = []
    with contextlib.suppress(FileNotFoundError):  # from the walk itself: the folder is gone
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                about = path.stat()
                found.append((str(path), about.st_size, about.st_mtime_ns))
    return sorted(found)


def _text(path: Path) -> str:
    """The content of a file; empty where there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""


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
    """Build the entry and rename it into place. True: another process was faster, and this build is dropped."""
    shutil.rmtree(unfinished, ignore_errors=True)  # left by a killed process: this process holds the lock
    unfinished.mkdir()
    try:
        (unfinished / _HOLDER).write_text(f"process {os.getpid()} of {platform.node()}")
        build(unfinished)
        for name in (_HOLDER, TOLD):
            (unfinished / name).unlink(missing_ok=True)
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
