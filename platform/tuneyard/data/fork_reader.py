"""Reads remote files for a process that is a fork, such as a data worker: clients of remote stores do not survive a fork (`storage.forks`).

Each fork that reads starts a process of its own (`fork_reading`), asks it for ranges through pipes, and takes it along when it ends.
Several reads are in flight at the same time. Answers come in any order, with the number of their request.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from tuneyard.api import StorageError

if TYPE_CHECKING:
    from tuneyard.data.file_types import FoundFile

_starting = threading.Lock()
_reader: _Reader | None = None


def _forget() -> None:
    """A fork of this process has a reader of its own, and no thread of this one."""
    global _reader, _starting
    _reader, _starting = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


def read_range(found: FoundFile, position: int, size: int) -> bytes:
    """`size` bytes of a remote file from `position` on, and fewer at its end. Raises what `open_found` and its file raise."""
    global _reader
    with _starting:
        if _reader is None or _reader.has_ended:
            _reader = _Reader()
        reader = _reader
    return reader.read(found, position, size)


class _Reader:
    """The process that reads, as the fork sees it."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", "tuneyard.data.fork_reading"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._turn = threading.Lock()
        self._numbers = count()
        self._waiting: dict[int, Future[bytes]] = {}
        self.has_ended = False
        threading.Thread(target=self._receive, name="tuneyard-fork-reader", daemon=True).start()

    def read(self, found: FoundFile, position: int, size: int) -> bytes:
        assert self._process.stdin is not None
        answer: Future[bytes] = Future()
        ended = StorageError(f"{found.uri}: the process that reads it has ended", "start the task again")
        with self._turn:
            if self.has_ended:
                raise ended
            number = next(self._numbers)
            self._waiting[number] = answer
            try:
                pickle.dump((number, found, position, size), self._process.stdin)
                self._process.stdin.flush()
            except OSError as error:
                raise ended from error
            except BaseException:
                self._process.kill()  # a request that was cut would be taken together with the next one
                raise
        try:
            return answer.result()
        except EOFError as error:
            raise ended from error

    def _receive(self) -> None:
        """Hand out answers until the process ends."""
        assert self._process.stdout is not None
        try:
            with suppress(OSError, EOFError, pickle.UnpicklingError):
                while True:
                    number, answer = pickle.load(self._process.stdout)
                    waits = self._waiting.pop(number)
                    if isinstance(answer, Exception):
                        waits.set_exception(answer)
                    else:
                        waits.set_result(answer)
        finally:  # whatever ends this thread, no read waits for ever
            self._process.kill()
            with self._turn:
                self.has_ended = True
            for waits in self._waiting.values():
                waits.set_exception(EOFError())
            self._process.wait()
