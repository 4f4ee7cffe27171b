"""Handles Ctrl-C: the first asks for a clean stop, the second ends at once."""

from __future__ import annotations

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

    Outside the main thread, Python cannot handle signals: the flag is never set.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        tell()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
