"""Claims of processes of one machine on the splits of a stream that they build."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Any


class Claims:
    """One lock per split, all on one file. The kernel releases the locks of a process that dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process, self._file = 0, -1

    def take(self, split: int) -> bool:
        """Claim a split for this process. False: another process has it.

        Where locks do not work (a folder of another user, some network file systems), every claim succeeds: processes repeat work, and none
        waits.
        """
        try:
            fcntl.lockf(self._descriptor(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, split + 1)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_process": 0, "_file": -1}

    def is_free(self, split: int) -> bool:
        """Whether no other process builds a split now."""
        if not self.take(split):
            return False
        self.give_back(split)
        return True

    def give_back(self, split: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(self._descriptor(), fcntl.LOCK_UN, 1, split + 1)

    def _descriptor(self) -> int:
        if self._process != os.getpid():  # locks are not inherited by a forked process
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._process, self._file = os.getpid(), os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._file
