"""Data workers: processes on the machine of the ranks that build shards ahead of the rank's reads.

Workers share the place of the window that the rank reads. Each takes the first split from there on that is neither built nor claimed. A
dead worker is replaced with the next call of `reads`. A split of a worker that hangs is built by the rank after a minute.
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
from collections import deque
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
"""Niceness: workers run below the ranks, because training waits for the ranks."""
_PLACE = struct.Struct("<QQ")
_PR_SET_PDEATHSIG = 1


class DataWorkers:
    """`count` worker processes, started by `start`. They end with this process, even if it is killed."""

    def __init__(
        self, stream: Stream[Any], count: int, *, beside: Stream[Any] | None = None, ahead: int = 2, niceness: int = _NICE
    ) -> None:
        """`beside`: a stream of which all shards are built when no others are wanted. `ahead`: windows to build, counted from the rank's
        window, which is included.
        """
        self._stream, self._beside = stream, beside
        self._count = count
        self._ahead = ahead
        self._niceness = niceness
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
        """Tell workers that the rank reads this window now, and replace dead workers."""
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
            _end_with_parent(self._owner, self._niceness)
            self._work()
        except BaseException:  # noqa: BLE001 - a worker may fail: the rank builds the missing shards, and reports the fault
            traceback.print_exc()
        finally:
            os._exit(0)

    def _work(self) -> None:
        self._stream.recipe.begin_worker()
        seen, left = Done(), deque(range(len(self._beside.splits)) if self._beside is not None else ())
        while os.getppid() == self._owner:
            place = Place(*_PLACE.unpack_from(self._shared, 0))
            done = seen.at(place)
            split = next(self._wanted(place, done), None)
            if split is None and self._beside is not None and left:
                with suppress(TuneyardError):  # as below
                    self._beside.build_unless_claimed(self._beside.splits[left.popleft()])
                continue
            if split is None:
                time.sleep(_IDLE_S)
                continue
            try:
                self._stream.build_unless_claimed(self._stream.splits[split])
            except TuneyardError:
                done.add(split)  # the rank meets the same error, and reports it
                time.sleep(_AFTER_FAILURE_S)
            else:
                done.add(split)

    def _wanted(self, place: Place, done: set[int]) -> Iterator[int]:
        """Splits of the next windows that are neither built nor claimed."""
        wanted = wanted_splits(self._stream, place, done, ahead=self._ahead, near=True)
        return (number for number in wanted if self._stream.claims.is_free(number))


class Done:
    """Splits that need no more work in the current epoch. In the next epoch, their shards may have been removed to make room."""

    def __init__(self) -> None:
        self._epoch = 0
        self._splits: set[int] = set()

    def at(self, place: Place) -> set[int]:
        """The mutable set of done splits in the epoch of `place`."""
        if place.epoch != self._epoch:
            self._epoch, self._splits = place.epoch, set()
        return self._splits


def wanted_splits(stream: Stream[Any], place: Place, done: set[int], *, ahead: int, near: bool = False) -> Iterator[int]:
    """Splits without a shard in `ahead` windows from `place` on, in the order of reading. Splits with a shard are added to `done`.

    `near`: within a window, splits that the open readers of this process reach soonest come first. A window is read once it is complete.
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


def _end_with_parent(parent: int, niceness: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(niceness)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
