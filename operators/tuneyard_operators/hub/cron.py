"""Decides when a Schedule runs next, and which of its jobs to create, cancel and delete now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from croniter import croniter

from tuneyard.api import Phase
from tuneyard.api.schedule import ScheduleGoal, ScheduleStatus
from tuneyard.kubernetes.names import shortened
from tuneyard.storage.uris import join
from tuneyard_operators.hub.clock import at, written

_MOST_COUNTED = 100


@dataclass(frozen=True)
class Run:
    """A job that the schedule has created."""

    name: str
    created: datetime
    phase: Phase


@dataclass(frozen=True)
class ScheduleStep:
    """`start`: the moment of the run to create; `cancel`, `delete`: names of jobs; `status`: the schedule's next status."""

    status: ScheduleStatus
    start: datetime | None = None
    cancel: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()


def next_after(cron: str, zone: str, moment: datetime) -> datetime:
    """The first moment after `moment` that matches the cron line, in UTC.

    On days when clocks change, a line with named hours still runs once, even if its hour is skipped or repeated. A line that runs every
    hour, or every few minutes, follows elapsed time. Vixie's and Debian's cron do the same.
    """
    return _neighbour(cron, zone, moment, forward=True)


def _last_until(cron: str, zone: str, moment: datetime) -> datetime:
    return _neighbour(cron, zone, moment + timedelta(seconds=1), forward=False)


def _neighbour(cron: str, zone: str, moment: datetime, *, forward: bool) -> datetime:
    place = ZoneInfo(zone)
    local = moment.astimezone(place)
    by_the_hour = cron.split()[1].startswith("*")
    times = croniter(cron, local if by_the_hour else local.replace(tzinfo=None))
    while True:
        found: datetime = times.get_next(datetime) if forward else times.get_prev(datetime)
        found = (found if by_the_hour else found.replace(tzinfo=place)).astimezone(UTC)
        if (found > moment) if forward else (found < moment):
            return found


def run_name(schedule: str, moment: datetime) -> str:
    """The name of a run's JobSpec. It depends on the run alone, so that two hubs cannot create a run twice (as in CronJobs)."""
    return f"{shortened(schedule, 48)}-{int(moment.timestamp() // 60)}"


def run_spec(template: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The spec of the run `name`: the template's spec, with a folder of its own below the template's output."""
    placement = template.get("placement") or {}
    if placement.get("spread") == "allowed":  # templates of an older version have it; the API server refuses it in a new JobSpec
        template = {**template, "placement": {field: value for field, value in placement.items() if field != "spread"}}
    storage = template.get("storage") or {}
    if not storage.get("output"):
        return dict(template)  # the hub gives each job a folder of its own
    return {**template, "storage": {**storage, "output": join(storage["output"], name)}}


def advance_schedule(
    name: str, goal: ScheduleGoal, status: ScheduleStatus, created: datetime, runs: Sequence[Run], now: datetime
) -> ScheduleStep:
    """The step that is due. If several runs were missed, only the last is made up for, and only within `startingDeadline`."""
    active = [run for run in runs if not run.phase.final]
    finished = sorted((run for run in runs if run.phase.final), key=lambda run: run.created, reverse=True)
    delete = tuple(run.name for run in finished[goal.history :])
    due, missed = _due(goal, status, created, now)
    coming = written(next_after(goal.cron, goal.time_zone, now))
    after = status.model_copy(update={"active": sorted(run.name for run in active), "next_run": coming})
    if goal.suspend:
        # Runs that fall into a suspension do not count as missed.
        return ScheduleStep(after.model_copy(update={"next_run": None, "last_run": written(now), "message": "suspended"}), delete=delete)
    if due is None:
        return ScheduleStep(after, delete=delete)
    late_s = (now - due).total_seconds()
    after.last_run = written(due)
    after.message = f"{missed} runs were missed while no hub was there" if missed else ""
    if goal.starting_deadline is not None and late_s > goal.starting_deadline:
        after.message = f"the run of {written(due)} was skipped: {late_s:.0f} s late, startingDeadline is {goal.starting_deadline:g} s"
        return ScheduleStep(after, delete=delete)
    if active and goal.concurrency == "forbid":
        after.message = f"the run of {written(due)} was skipped: {active[0].name} still runs, concurrency is forbid"
        return ScheduleStep(after, delete=delete)
    cancel = tuple(run.name for run in active) if goal.concurrency == "replace" else ()
    after.active = sorted({*(after.active if not cancel else []), run_name(name, due)})
    return ScheduleStep(after, start=due, cancel=cancel, delete=delete)


def _due(goal: ScheduleGoal, status: ScheduleStatus, created: datetime, now: datetime) -> tuple[datetime | None, int]:
    """The last run that is due and was not created, and the number of missed runs before it."""
    since = max(at(status.last_run), created) if status.last_run else created
    last = _last_until(goal.cron, goal.time_zone, now)
    if last <= since:
        return None, 0
    missed, moment = 0, next_after(goal.cron, goal.time_zone, since)
    while moment < last and missed < _MOST_COUNTED:
        missed, moment = missed + 1, next_after(goal.cron, goal.time_zone, moment)
    return last, missed
