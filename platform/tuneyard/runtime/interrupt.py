"""Handles Ctrl-C: the first asks for a clean stop, the second ends at once."""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ShouldStop = Callable[[], bool]


def never() -> bool:
    """Never stops."""
    return False


@contextmanager
def stop_on_interrupt(tell: Callable[[], None]) -> Iterator[ShouldStop]:
    """A flag that the first SIGINT or SIGTERM sets before it calls `tell`. The second raises KeyboardInterrupt.

    Two signals that arrive while a library runs in C count as one to Python, so that a thread counts them too (`_Counter`). Outside the
    main thread, Python cannot handle signals: the flag is never set.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    counter = _Counter()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        counter.handled += 1
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        tell()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    with counter:
        try:
            yield asked.is_set
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Counter:
    """Signals by the bytes that Python writes when each arrives (`signal.set_wakeup_fd`). Where the handler has seen fewer a moment later,
    it is called again."""

    _MOMENT_S = 0.5

    def __init__(self) -> None:
        self.handled = 0
        self._closed = threading.Event()

    def __enter__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        threading.Thread(target=self._count, name="signals", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        signal.set_wakeup_fd(self._before)
        os.close(self._write)  # ends the thread, which closes the other end

    def _count(self) -> None:
        arrived = 0
        while found := os.read(self._read, 64):
            arrived += sum(number in (signal.SIGINT, signal.SIGTERM) for number in found)
            if arrived > 1 and not self._closed.wait(self._MOMENT_S) and self.handled == 1:
                _thread.interrupt_main()
        os.close(self._read)
