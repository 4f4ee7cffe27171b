"""The clock of a runner. A test hands in another one."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

_LONGEST_S = 2.0
_BUSY_S = 0.5


class Clock(Protocol):
    def now(self) -> datetime:
        """The present time, in UTC."""
        ...

    def wait(self, until: datetime, *, busy: bool) -> None:
        """Wait until a moment, or for a shorter time. `busy`: processes or looks are under way, whose end is of interest."""
        ...


class SystemClock:
    """Waits for two seconds at most, so that wishes, edits and a clock that was set are noticed."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def wait(self, until: datetime, *, busy: bool) -> None:
        left_s = (until - self.now()).total_seconds()
        time.sleep(max(0.05, min(left_s, _BUSY_S if busy else _LONGEST_S)))
