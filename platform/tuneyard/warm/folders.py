"""Temporary folders that are removed by their owner, or, if the owner was killed, by the next process that creates one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OWNER = ".tuneyard-owner"
"""A lock file, which the process that created the folder holds until it ends."""
_REMOVE_TRIES = 10


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder below `parent` (None: the system's temporary folder), removed at the end of the block.

    First removes folders of dead owners: folders of this user with the same prefix. Raises OSError.
    """
    parent = parent or Path(tempfile.gettempdir())
    _remove_abandoned(parent, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    owner = -1
    try:
        owner = os.open(folder / f"{_OWNER}.new", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        fcntl.flock(owner, fcntl.LOCK_EX)
        # Renamed after it is locked, so that no process sees it unlocked.
        (folder / f"{_OWNER}.new").rename(folder / _OWNER)
        yield folder
    finally:
        _remove(folder)
        if owner >= 0:
            os.close(owner)


def _remove(folder: Path) -> None:
    """Remove a folder. Processes that are just ending may still write a last line, so removal is retried."""
    for _ in range(_REMOVE_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(0.2)


def _remove_abandoned(parent: Path, prefix: str) -> None:
    for owner in parent.glob(f"{prefix}*/{_OWNER}"):
        with contextlib.suppress(OSError):
            if owner.lstat().st_uid != os.geteuid():
                continue
            with os.fdopen(os.open(owner, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(owner.parent, ignore_errors=True)
