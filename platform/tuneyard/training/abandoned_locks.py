"""Locks of compilations that were killed.

torch compiles an extension under a lock that is the existence of a file: where the compiling process is killed, every later one waits
without end. A compilation has ninja running in the extension's folder; where nothing runs there, nothing compiles.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_YOUNG_S = 30.0
"""Between making the lock and starting ninja, torch looks for the compiler, which takes seconds."""


def remove_abandoned_locks(root: Path) -> list[Path]:
    """Remove the locks below `root`, torch's folder of extensions, that no running compilation holds; they are returned.

    Processes of this machine are looked at: on a folder that several machines share, `root` has to be one of the machine's own.
    """
    locks = [lock for lock in root.glob("*/lock") if _age_s(lock) > _YOUNG_S]
    busy = set(_folders_of_processes()) if locks else set()
    removed = []
    for lock in locks:
        if lock.parent.resolve() not in busy:
            with suppress(FileNotFoundError):
                lock.unlink()
                removed.append(lock)
    return removed


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _folders_of_processes() -> Iterator[Path]:
    for process in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            yield Path(os.readlink(process))
