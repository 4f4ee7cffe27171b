"""Decides whether and when a failed attempt is followed by another, by `retries` in the JobSpec. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tuneyard.api import Attempt, FailureKind, Retries, retrying
from tuneyard.api.retrying import Answer
from tuneyard.kubernetes import backoff_s
from tuneyard_operators.hub.clock import seconds_since
from tuneyard_operators.hub.settings import Settings

_BY_THE_SPEC = (FailureKind.USER_ERROR, FailureKind.OUT_OF_MEMORY, FailureKind.IMAGE)
"""Kinds that say that a spec cannot work. One that has worked can."""


def answer_to(failed: Attempt, failures: Sequence[Attempt], retries: Retries, *, has_served: bool = False) -> Answer:
    """Whether another attempt follows `failed`, the last of a task's `failures` (which leave out preemptions).

    `has_served`: whether an earlier attempt of the same server has served.
    """
    kind = FailureKind(failed.failure or FailureKind.INTERNAL)
    if has_served and kind in _BY_THE_SPEC:
        kind = FailureKind.INTERNAL
    return retrying.answer_to(kind, retries, failures=len(failures), place="elsewhere")


def not_before(attempts: Sequence[Attempt], settings: Settings, now: datetime) -> float:
    """Seconds until the next attempt may start: 0 after the first failure or a preemption, then a pause that doubles with each failure."""
    last = attempts[-1] if attempts else None
    if last is None or not last.failure or last.failure == FailureKind.PREEMPTED or last.ended_at is None:
        return 0.0
    failures = sum(bool(a.failure) and a.failure != FailureKind.PREEMPTED for a in attempts)
    if failures <= 1:
        return 0.0
    pause_s = backoff_s(settings.backoff_s, failures - 1, settings.longest_backoff_s)
    return max(0.0, pause_s - seconds_since(last.ended_at, now))
