"""Schedules whose runs do not happen, or whose figures have regressed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from tuneyard.api.moments import moment_of
from tuneyard.api.schedule_status import ScheduleStatus
from tuneyard.api.wire import read
from tuneyard_operators.metrics import families as of
from tuneyard_operators.metrics.families import Family, Sample

MOST_SCHEDULES = 1000
_LOST = ("missed", "lost")
_CONDITIONS = {"Regressed": of.REGRESSED, "Stalled": of.SCHEDULE_STALLED}


def schedule_series(
    items: Iterable[tuple[tuple[str, str], Mapping[str, Any]]], now: datetime, most: int = MOST_SCHEDULES
) -> Iterator[Sample]:
    """`items`: key and object of each Schedule. Of more than `most` Schedules, those with something to tell come first."""
    found = {key: dict(_figures(item, now)) for key, item in items}
    for key, figures in islice(sorted(found.items(), key=lambda each: (not any(each[1].values()), each[0])), most):
        for family, value in figures.items():
            yield family, key, value


def _figures(item: Mapping[str, Any], now: datetime) -> Iterator[tuple[Family, float]]:
    status = read(ScheduleStatus, item.get("status")).value
    yield of.SCHEDULE_STALLED, 0.0
    for condition in status.conditions:
        if condition.type in _CONDITIONS:
            yield _CONDITIONS[condition.type], float(condition.status == "True")
    yield of.SCHEDULE_MISSED, float(bool(status.runs) and status.runs[-1].verdict in _LOST)
    suspended = status.followed == "suspended"
    due = moment_of(status.next_run) if status.next_run and not suspended and not status.waiting else None
    yield of.SCHEDULE_OVERDUE, max(0.0, (now - due).total_seconds()) if due is not None else 0.0
