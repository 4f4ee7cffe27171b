"""Reads remote files for a process that is a fork, such as a data worker: clients of remote stores do not survive a fork (`storage.forks`).

Each fork that reads starts a process of its own (`fork_reading`), asks it for ranges through pipes, and takes it along when it ends.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from tuneyard.api import StorageError

if TYPE_CHECKING:
    from tuneyard.data.file_types import FoundFile

_readers: dict[int, _Reader] = {}
"""By process id: a fork of a fork has a reader of its own."""


def read_range(found: FoundFile, position: int, size: int) -> bytes:
    """`size` bytes of a remote file from `position` on, and fewer at its end. Raises what `open_found` and its file raise."""
    reader = _readers.get(os.getpid())
    if reader is None or reader.has_ended:
        reader = _readers[os.getpid()] = _Reader()
    return reader.read(found, position, size)


class _Reader:
    """The process that reads, as the fork sees it. Threads of the fork take turns."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        command = [sys.executable, "-P", "-m", "tuneyard.data.fork_reading"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def read(self, found: FoundFile, position: int, size: int) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            try:
                pickle.dump((found, position, size), self._process.stdin)
                self._process.stdin.flush()
                answer: bytes | Exception = pickle.load(self._process.stdout)
            except (OSError, EOFError) as error:
                raise StorageError(f"{found.uri}: the process that reads it has ended", "start the task again") from error
            except BaseException:
                self._process.kill()  # the next answer would be that of this request
                raise
        if isinstance(answer, Exception):
            raise answer
        return answer
