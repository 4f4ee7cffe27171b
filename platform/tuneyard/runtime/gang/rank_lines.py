"""The lines that a rank writes into its log: stages, checkpoints, and a step every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from tuneyard.tracking import Event, Stage, Step
from tuneyard.tracking.progress.words import event_words, rate_words

_EVERY_S = 10.0


class RankLines:
    """The lines of each event. Steps get one line in ten seconds; the first and the last step always get one."""

    def __init__(self, *, every_s: float = _EVERY_S, now: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._now = now
        self._said_at: float | None = None

    def of(self, event: Event) -> list[str]:
        if isinstance(event, Step):
            return self._step(event)
        if isinstance(event, Stage):
            return [event.name] if event.done == 0 else []
        words = event_words(event)
        return [words] if words else []

    def _step(self, event: Step) -> list[str]:
        now = self._now()
        if self._said_at is not None and event.step < event.of and now - self._said_at < self._every_s:
            return []
        self._said_at = now
        rate = rate_words(event.tokens_per_s, event.rows_per_s)
        return [f"step {event.step}/{event.of}  loss {event.loss:.4f}  {event.step_s:.2f} s  {rate}"]
