"""Sinks of events, and their warnings, which do not disturb the job."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Protocol

from tuneyard.tracking.events import Event


class Sink(Protocol):
    """Takes the events of one job. A failure behind the sink raises in neither method, and `record` never waits."""

    def record(self, event: Event) -> None: ...

    def close(self, status: str, message: str) -> None:
        """The job ended. Waits a bounded time for the last writes."""


class Warnings:
    """Messages from any thread to the driver's; one of each kind."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[str] = SimpleQueue()
        self._seen: set[str] = set()

    def add(self, kind: str, message: str) -> None:
        if kind not in self._seen:
            self._seen.add(kind)
            self._queue.put(message)

    def take(self) -> list[str]:
        """Messages since the last call."""
        messages = []
        while True:
            try:
                messages.append(self._queue.get_nowait())
            except Empty:
                return messages
