"""Data workers on the machine of the ranks: processes that build shards ahead of where a rank reads.

They share one number with the rank, the window that it reads. Each looks for the first split from there on that nobody has built or
claimed. A worker that dies is replaced when the rank next asks; one that hangs loses its split to the rank after a minute.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
import os
import signal
import struct
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tuneyard.api import TuneyardError
from tuneyard.data.stream.reading import way_to
from tuneyard.data.stream.rows import Stream
from tuneyard.data.stream.windows import Place

_IDLE_S = 0.02
_AFTER_FAILURE_S = 1.0
_NICE = 5
"""Below the ranks: they are what everybody waits for."""
_PLACE = struct.Struct("<QQ")
_PR_SET_PDEATHSIG = 1


class DataWorkers:
    """`count` processes, from `start` on. They end with this process, however it ends."""

    def __init__(self, stream: Stream[Any], count: int, *, ahead: int = 2) -> None:
        """`ahead`: windows that are built before they are read, that of the rank included."""
        self._stream = stream
        self._count = count
        self._ahead = ahead
        self._shared = mmap.mmap(-1, _PLACE.size)
        self._owner = os.getpid()
        self._pids: list[int] = []
        atexit.register(self.close)

    @property
    def pids(self) -> list[int]:
        return list(self._pids)

    def start(self) -> None:
        self._pids.extend(self._fork() for _ in range(self._count - len(self._pids)))

    def reads(self, place: Place, _waited_s: float = 0.0) -> None:
        """The rank reads this window now. Replaces workers that have died."""
        _PLACE.pack_into(self._shared, 0, place.epoch, place.window)
        if os.getpid() != self._owner:  # a process of torch's loader
            return
        for pid in list(self._pids):
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    continue
            self._pids.remove(pid)
        self.start()

    def close(self) -> None:
        """End all workers."""
        if os.getpid() != self._owner:
            return
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._pids.clear()

    def _fork(self) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            _end_with_parent(self._owner)
            self._work()
        except BaseException:  # noqa: BLE001 - a worker's end is no failure: the rank builds what is missing, and says what is wrong
            traceback.print_exc()
        finally:
            os._exit(0)

    def _work(self) -> None:
        self._stream.recipe.begin_worker()
        seen = Done()
        while os.getppid() == self._owner:
            place = Place(*_PLACE.unpack_from(self._shared, 0))
            done = seen.at(place)
            split = next(self._wanted(place, done), None)
            if split is None:
                time.sleep(_IDLE_S)
                continue
            try:
                self._build(split)
            except TuneyardError:
                done.add(split)  # the rank meets the same error, and tells it
                time.sleep(_AFTER_FAILURE_S)
            else:
                done.add(split)

    def _build(self, number: int) -> None:
        split = self._stream.splits[number]
        if self._stream.claims.take(number):
            try:
                self._stream.recipe.build(split, self._stream.folder)
            finally:
                self._stream.claims.give_back(number)

    def _wanted(self, place: Place, done: set[int]) -> Iterator[int]:
        """Splits of the next windows that are not there, and that nobody builds."""
        wanted = wanted_splits(self._stream, place, done, ahead=self._ahead, near=True)
        return (number for number in wanted if self._stream.claims.is_free(number))


class Done:
    """Splits that need nothing more in the epoch that is read. In the next one the disk may have been too small for their shards."""

    def __init__(self) -> None:
        self._epoch = 0
        self._splits: set[int] = set()

    def at(self, place: Place) -> set[int]:
        """Those of the epoch of the window that is read: splits may be added."""
        if place.epoch != self._epoch:
            self._epoch, self._splits = place.epoch, set()
        return self._splits


def wanted_splits(stream: Stream[Any], place: Place, done: set[int], *, ahead: int, near: bool = False) -> Iterator[int]:
    """Splits without a shard of `ahead` windows from `place` on, in the order in which they are read. Those that have one join `done`.

    `near`: within a window, which is read when all of it is there, first those that the open readers of this process stand before.
    """
    for _ in range(ahead):
        missing = (number for number in stream.windows.splits_at(place) if _is_missing(stream, number, done))
        if near and stream.windows.sequences is not None:
            yield from sorted(missing, key=lambda number: way_to(stream.recipe.files, stream.splits[number]))
        else:
            yield from missing
        place = stream.windows.after(place)


def _is_missing(stream: Stream[Any], number: int, done: set[int]) -> bool:
    if number not in done and stream.path_of(stream.splits[number]).exists():
        done.add(number)
    return number not in done


def _end_with_parent(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(_NICE)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
