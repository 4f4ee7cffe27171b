"""When a Schedule runs next, and what is to be done about it now. Pure."""

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
    """A job that this schedule has made."""

    name: str
    created: datetime
    phase: Phase


@dataclass(frozen=True)
class ScheduleStep:
    """`start`: the moment of the run to create; `cancel`, `delete`: names of jobs; `status` as it should read then."""

    status: ScheduleStatus
    start: datetime | None = None
    cancel: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()


def next_after(cron: str, zone: str, moment: datetime) -> datetime:
    """The first moment after `moment` that the cron line names, in UTC.

    Where clocks change: a line that names its hours runs once a day, an hour that is left out notwithstanding, or one that comes twice;
    a line that runs every hour, or every so many minutes, goes by time that passes. So do Vixie's and Debian's cron.
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
    """The same for the same run, so that it is created once by however many hubs (as CronJobs name their Jobs)."""
    return f"{shortened(schedule, 48)}-{int(moment.timestamp() // 60)}"


def run_spec(template: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The spec of the run `name`, as its JobSpec holds it: the template's, with a folder of its own below the template's output."""
    placement = template.get("placement") or {}
    if placement.get("spread") == "allowed":  # of an older version; an API server refuses it in a new JobSpec
        template = {**template, "placement": {field: value for field, value in placement.items() if field != "spread"}}
    storage = template.get("storage") or {}
    if not storage.get("output"):
        return dict(template)  # the hub gives each job a folder of its own
    return {**template, "storage": {**storage, "output": join(storage["output"], name)}}


def advance_schedule(
    name: str, goal: ScheduleGoal, status: ScheduleStatus, created: datetime, runs: Sequence[Run], now: datetime
) -> ScheduleStep:
    """What is due. Of several runs that were missed, only the last is made up for, and only within `startingDeadline`."""
    active = [run for run in runs if not run.phase.final]
    finished = sorted((run for run in runs if run.phase.final), key=lambda run: run.created, reverse=True)
    delete = tuple(run.name for run in finished[goal.history :])
    due, missed = _due(goal, status, created, now)
    coming = written(next_after(goal.cron, goal.time_zone, now))
    after = status.model_copy(update={"active": sorted(run.name for run in active), "next_run": coming})
    if goal.suspend:
        # What would have run while suspended is not missed.
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
    """The last run that should have begun by now and has not, and how many before it have not either."""
    since = max(at(status.last_run), created) if status.last_run else created
    last = _last_until(goal.cron, goal.time_zone, now)
    if last <= since:
        return None, 0
    missed, moment = 0, next_after(goal.cron, goal.time_zone, since)
    while moment < last and missed < _MOST_COUNTED:
        missed, moment = missed + 1, next_after(goal.cron, goal.time_zone, moment)
    return last, missed
