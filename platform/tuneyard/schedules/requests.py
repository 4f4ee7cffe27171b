"""Runs that a person has asked for: one now, or those of past dates, a few at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tuneyard.api.moments import moment_of, written
from tuneyard.api.schedule import ScheduleGoal
from tuneyard.api.schedule_parts import Backfill
from tuneyard.api.schedule_status import BackfillStatus, ScheduleStatus
from tuneyard.schedules.names import digest, is_digest, requested_name
from tuneyard.schedules.starts import Start
from tuneyard.schedules.times import day_bounds, next_after, times_between

MOST_BACKFILLED = 1000


def why_refused(cron: str, zone: str, request: Backfill, now: datetime) -> str:
    """Why a backfill runs nothing: it has too many runs; empty: it can run."""
    too_many = _size(cron, zone, request, now) > MOST_BACKFILLED
    return f"more than {MOST_BACKFILLED:,} runs from {request.first} to {request.last}: give fewer dates" if too_many else ""


def _size(cron: str, zone: str, request: Backfill, now: datetime) -> int:
    """Number of runs of a backfill, or one more than `MOST_BACKFILLED`."""
    after, until = day_bounds(request.first, request.last, zone)
    return len(times_between(cron, zone, after, min(until, now), MOST_BACKFILLED + 1))


def requested_runs(
    name: str, goal: ScheduleGoal, status: ScheduleStatus, active: Sequence[Start], now: datetime
) -> tuple[ScheduleStatus, tuple[Start, ...]]:
    """The runs to start now, and the status that records them. `active`: runs that have not ended, or wait for their data.

    The status is stored after the runs were started. A run that is started again after a kill has the same name.
    """
    starts: list[Start] = []
    if goal.run_now is not None and goal.run_now != status.run_now and (moment := moment_of(goal.run_now)) <= now:
        starts.append(Start(requested_name(name, moment, f"now {goal.run_now}"), moment, "now"))
        status = status.model_copy(update={"run_now": goal.run_now})
    if goal.backfill is not None:
        progress, more = _backfill(name, goal, goal.backfill, status.backfill, active, now)
        status = status.model_copy(update={"backfill": progress})
        starts += more
    return status, tuple(starts)


def _backfill(
    name: str, goal: ScheduleGoal, request: Backfill, before: BackfillStatus | None, active: Sequence[Start], now: datetime
) -> tuple[BackfillStatus, list[Start]]:
    key = digest(f"{request.first} {request.last} {request.id}")
    progress = before
    if progress is None or not is_digest(progress.key, key):
        refused = why_refused(goal.cron, goal.time_zone, request, now)
        size = 0 if refused else _size(goal.cron, goal.time_zone, request, now)
        progress = BackfillStatus(key=key, of=size, done=size == 0, message=refused)
    if progress.done:
        return progress, []
    first, until = day_bounds(request.first, request.last, goal.time_zone)
    after = moment_of(progress.last) if progress.last else first
    room = request.parallel - sum(start.kind == "backfill" for start in active)
    due = times_between(goal.cron, goal.time_zone, after, min(until, now), max(0, room))
    last = due[-1] if due else after
    changes = {
        "last": written(last) if due else progress.last,
        "started": progress.started + len(due),
        "done": next_after(goal.cron, goal.time_zone, last) > min(until, now),
    }
    starts = [Start(requested_name(name, moment, key), moment, "backfill") for moment in due]
    return progress.model_copy(update=changes), starts
