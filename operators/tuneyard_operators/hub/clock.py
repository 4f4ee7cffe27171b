"""Times as Kubernetes writes them. The clock itself is always an argument."""

from __future__ import annotations

from datetime import UTC, datetime

from tuneyard.api.moments import moment_of


def written(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def at(text: str) -> datetime:
    """The moment that an RFC 3339 text means. Raises ValueError on anything else."""
    return moment_of(text)


def seconds_since(text: str, now: datetime) -> float:
    """Never negative: a clock that was set back makes nothing happen early."""
    return max(0.0, (now - at(text)).total_seconds())
