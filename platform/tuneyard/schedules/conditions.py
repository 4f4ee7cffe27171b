"""Conditions of a Schedule, in the format of Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tuneyard.api.moments import written
from tuneyard.api.status import Condition


def with_condition(conditions: Sequence[Condition], kind: str, value: str, reason: str, message: str, now: datetime) -> list[Condition]:
    """The conditions with one of `kind`. Its transition time changes only with its value."""
    before = next((each for each in conditions if each.type == kind), None)
    since = before.last_transition_time if before is not None and before.status == value else written(now)
    made = Condition(type=kind, status=value, reason=reason, message=message[:1000], last_transition_time=since)
    others = [each for each in conditions if each.type != kind]
    unchanged = before is not None and (before.status, before.reason, before.message) == (value, reason, made.message)
    return list(conditions) if unchanged else [*others, made]
