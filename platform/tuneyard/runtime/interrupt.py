"""Handles Ctrl-C, SIGTERM and a closed terminal: the first asks for a clean stop, the second ends at once."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ShouldStop = Callable[[], bool]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_REPEATED_S = 2.0
"""`timeout` sends its signal to the command and then to the command's process group. A closed terminal sends one, and its shell another."""


def never() -> bool:
    """Never stops."""
    return False


@contextmanager
def stop_on_interrupt(tell: Callable[[], None]) -> Iterator[ShouldStop]:
    """A flag that the first SIGINT, SIGTERM or SIGHUP sets before it calls `tell`. The second raises KeyboardInterrupt. A SIGHUP that is
    ignored (`nohup`) stays ignored. SIGTERM and SIGHUP that come again within two seconds count once.

    Two signals that arrive while a library runs in C count as one to Python, so that a thread counts them too (`_Counter`). Outside the
    main thread, Python cannot handle signals: the flag is never set.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    handled = _Orders()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if not handled.add(number):
            return
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        tell()

    is_lasting = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    before = {number: signal.signal(number, on_signal) for number in _SIGNALS if not (number == signal.SIGHUP and is_lasting)}
    with _Counter(handled):
        try:
            yield asked.is_set
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Orders:
    """How often somebody has asked for the end, in signals."""

    def __init__(self) -> None:
        self.count = 0
        self._last = -_REPEATED_S

    def add(self, number: int) -> bool:
        """Whether a signal that has just arrived is another order."""
        now = time.monotonic()
        is_new = number == signal.SIGINT or now - self._last >= _REPEATED_S
        self._last = now
        self.count += is_new
        return is_new


class _Counter:
    """Signals by the bytes that Python writes when each arrives (`signal.set_wakeup_fd`). Where the handler has seen fewer a moment later,
    it is called again."""

    _MOMENT_S = 0.5

    def __init__(self, handled: _Orders) -> None:
        self._handled = handled
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
        arrived = _Orders()
        while found := os.read(self._read, 64):
            for number in found:
                if number in _SIGNALS:
                    arrived.add(number)
            if arrived.count > 1 and not self._closed.wait(self._MOMENT_S) and self._handled.count == 1:
                _thread.interrupt_main()
        os.close(self._read)
