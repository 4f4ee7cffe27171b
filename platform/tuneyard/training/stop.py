"""Stopping on request: a flag that any thread or signal may set. The ranks agree on it at the end of a step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

POLL_S = 0.5
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """`wanted` is this rank's flag; the ledger reduces it over the ranks, so that all stop after the same step."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def wanted(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()


@contextmanager
def listening(should_stop: Callable[[], bool]) -> Iterator[StopRequest]:
    """A StopRequest. It is set by `should_stop`, polled in a thread, and by SIGTERM and SIGINT (in the main thread).

    A second SIGINT interrupts at once, as it does by default.
    """
    request = StopRequest()
    done = threading.Event()

    def poll() -> None:
        while not done.wait(POLL_S):
            if should_stop():
                request.set()
                return

    poller = threading.Thread(target=poll, name="tuneyard-should-stop", daemon=True)
    poller.start()
    with _signals(request):
        try:
            yield request
        finally:
            done.set()
            poller.join()


@contextmanager
def _signals(request: StopRequest) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def on_signal(number: int, _frame: FrameType | None) -> None:
        request.set()
        signal.signal(number, before[signal.Signals(number)] or signal.SIG_DFL)

    for number in SIGNALS:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
