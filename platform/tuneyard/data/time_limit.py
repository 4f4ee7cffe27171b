"""A time limit for Python code that may loop endlessly, such as a chat template, in any thread.

A watching thread raises `TimeExceeded` in a thread that exceeds its limit. The exception interrupts Python code between two instructions,
but not a single call into a library.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
_LOOKS_EVERY_S = 0.5


class TimeExceeded(BaseException):
    """The limit was exceeded. It is no Exception, so that interrupted code does not handle it as its own error and continue."""


@dataclass
class _Call:
    ends_at: float
    interrupted: bool = False


class _Watch:
    """The watching thread of one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._begun = threading.Condition()
        self._calls: dict[int, _Call] = {}
        self._waits = False
        threading.Thread(target=self._watch, name="tuneyard-time-limit", daemon=True).start()

    def begin(self, limit_s: float) -> None:
        with self._begun:
            self._calls[threading.get_ident()] = _Call(time.monotonic() + limit_s)
            if self._waits:
                self._begun.notify()

    def end(self) -> None:
        """End the call. If it was just interrupted, wait here for the pending TimeExceeded, so that it is not raised later."""
        with self._begun:
            call = self._calls.pop(threading.get_ident())
        while call.interrupted:
            time.sleep(0)

    def _watch(self) -> None:
        with self._begun:
            while True:
                self._waits = not self._calls
                self._begun.wait(None if self._waits else _LOOKS_EVERY_S)
                for thread, call in self._calls.items():
                    if not call.interrupted and time.monotonic() >= call.ends_at:
                        call.interrupted = True
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TimeExceeded))


_current: _Watch | None = None


def within(limit_s: float, work: Callable[[], T]) -> T:
    """The result of `work`. Raises TimeExceeded soon after `limit_s`. Must not be nested in one thread."""
    global _current
    watch = _current
    if watch is None or watch.pid != os.getpid():  # threads do not survive a fork
        _current = watch = _Watch()
    watch.begin(limit_s)
    try:
        result = work()
    except TimeExceeded:
        raise
    except BaseException:
        watch.end()
        raise
    watch.end()
    return result
