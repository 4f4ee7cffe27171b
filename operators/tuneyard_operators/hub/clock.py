"""Times in the format of Kubernetes, and the clock that Schedules follow. Elsewhere the present time is an argument."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from tuneyard.api.moments import moment_of, written

__all__ = ["Clock", "at", "seconds_since", "utc_now", "written"]
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


def at(text: str) -> datetime:
    """The moment of an RFC 3339 text. Raises ValueError on any other text."""
    return moment_of(text)


def seconds_since(text: str, now: datetime) -> float:
    """Seconds from `text` to `now`; 0 instead of a negative number, where the clock was set back."""
    return max(0.0, (now - at(text)).total_seconds())
