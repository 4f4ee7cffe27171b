"""Runs that wait for their data: a run starts when somebody has seen its data, and is missed after its timeout.

The timeout counts only once this process has looked: the data may have arrived while no process followed the Schedule. A run whose data are
there starts once older runs were looked for again, since data of several dates often come together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tuneyard.api.moments import moment_of, written
from tuneyard.api.schedule import ScheduleGoal
from tuneyard.api.schedule_parts import WaitFor
from tuneyard.api.schedule_status import ScheduledRun, ScheduleStatus, WaitingRun
from tuneyard.schedules.conditions import with_condition
from tuneyard.schedules.expressions import Moment, render
from tuneyard.schedules.news import News
from tuneyard.schedules.starts import Start

DATA_ARRIVED = "DataArrived"
_MOST_WAITING = 300
"""Runs that a status can hold while they wait."""


@dataclass(frozen=True)
class Look:
    """The result of looks for the data of a run.

    `why_not`: why the storage gave no answer; empty: it did. `at_s`: start of the look in seconds of a monotonic clock: of the first look
    that found the data, or else of the last one.
    """

    arrived: bool
    why_not: str = ""
    at_s: float = field(default=0.0, compare=False)

    def after(self, before: Look | None) -> Look:
        """This look where the last one was `before`."""
        return before if before is not None and before.arrived and self.arrived else self


@dataclass(frozen=True)
class Sorted:
    """`ready`: runs whose data are there; `status`: with the runs that wait, and records of those that have waited too long."""

    status: ScheduleStatus
    ready: tuple[Start, ...]
    news: tuple[News, ...] = ()


def sorted_by_data(goal: ScheduleGoal, status: ScheduleStatus, starts: Sequence[Start], looks: Mapping[str, Look], now: datetime) -> Sorted:
    """Runs by the state of their data. `starts`: runs that have become due; `looks`: the last look for each run that waits, by its name."""
    if goal.wait_for is None:  # those that have waited so far start now
        conditions = [each for each in status.conditions if each.type != DATA_ARRIVED]
        after = status.model_copy(update={"waiting": [], "conditions": conditions})
        return Sorted(after, (*map(_start, status.waiting), *starts))
    known = {each.name for each in status.waiting}
    waiting = [*status.waiting, *(_waiting(goal.wait_for, goal, start, now) for start in starts if start.name not in known)]
    ready: list[Start] = []
    still: list[WaitingRun] = []
    missed: list[ScheduledRun] = []
    for each in waiting:
        look = looks.get(each.name, Look(False))
        waited_s = (now - moment_of(each.since)).total_seconds()
        if look.arrived and not _is_early(each, waiting, looks):
            ready.append(_start(each))
        elif not look.arrived and each.name in looks and (waited_s > goal.wait_for.timeout or _is_past(each, looks)):
            missed.append(_record(goal, each, look, now))
        else:
            still.append(each.model_copy(update={"message": look.why_not[:300]}))
    for each in _surplus(still, looks):
        still.remove(each)
        missed.append(_record(goal, each, looks[each.name], now, f", and {_MOST_WAITING} later runs wait"))
    after = status.model_copy(update={"waiting": still, "runs": [*status.runs, *missed]})
    after = after.model_copy(update={"conditions": _conditions(after, ready, missed, now)})
    if missed:
        after.message = f"the run of {missed[-1].due} was missed: {missed[-1].message}"
    ready.sort(key=lambda start: start.due)
    return Sorted(after, tuple(ready), tuple(News("missed", record.name, record.message) for record in missed))


def _is_early(run: WaitingRun, waiting: Sequence[WaitingRun], looks: Mapping[str, Look]) -> bool:
    """Whether an older run of the cron line was not looked for since the data of `run` were seen: its data may have come with them."""
    if run.kind != "scheduled":
        return False
    older = [looks.get(each.name) for each in waiting if each.kind == "scheduled" and moment_of(each.due) < moment_of(run.due)]
    seen_s = looks[run.name].at_s
    return any(look is None or (not look.arrived and not look.why_not and look.at_s < seen_s) for look in older)


def _surplus(still: Sequence[WaitingRun], looks: Mapping[str, Look]) -> list[WaitingRun]:
    """The oldest runs that were looked for in vain, where more than `_MOST_WAITING` wait."""
    in_vain = [each for each in still if each.name in looks and not looks[each.name].arrived]
    return sorted(in_vain, key=lambda each: moment_of(each.due))[: max(0, len(still) - _MOST_WAITING)]


def _is_past(waiting: WaitingRun, looks: Mapping[str, Look]) -> bool:
    """Whether a run of a backfill was looked for in vain: the data of a past date do not arrive any more."""
    return waiting.kind == "backfill" and waiting.name in looks and not looks[waiting.name].why_not


def _waiting(wait: WaitFor, goal: ScheduleGoal, start: Start, now: datetime) -> WaitingRun:
    path = render(wait.path, Moment(start.name, start.due, goal.time_zone))
    return WaitingRun(name=start.name, due=written(start.due), kind=start.kind, since=written(now), path=path)


def _start(waiting: WaitingRun) -> Start:
    return Start(waiting.name, moment_of(waiting.due), waiting.kind)


def _record(goal: ScheduleGoal, waiting: WaitingRun, look: Look, now: datetime, why_now: str = "") -> ScheduledRun:
    waited_s = (now - moment_of(waiting.since)).total_seconds()
    why = look.why_not or waiting.message or f"{waiting.path} did not exist"
    told = goal.notify is not None and "missed" in goal.notify.on
    return ScheduledRun(
        name=waiting.name,
        due=waiting.due,
        kind=waiting.kind,
        phase="Missed",
        started_at=written(now),
        verdict="missed",
        message=f"its data had not arrived after {waited_s:.0f} s{why_now}: {why}"[:500],
        notice="due" if told else "",
    )


def _conditions(status: ScheduleStatus, ready: Sequence[Start], missed: Sequence[ScheduledRun], now: datetime) -> list[Any]:
    if missed:
        return with_condition(status.conditions, DATA_ARRIVED, "False", "Missed", f"{missed[-1].name}: {missed[-1].message}", now)
    if status.waiting:
        newest = status.waiting[-1]
        return with_condition(
            status.conditions,
            DATA_ARRIVED,
            "False",
            "Waiting",
            f"{newest.name} waits for {newest.path}: {newest.message or 'not there yet'}",
            now,
        )
    if ready:
        return with_condition(status.conditions, DATA_ARRIVED, "True", "Arrived", f"the data of {ready[-1].name} have arrived", now)
    return list(status.conditions)
