"""The run of the cron line that is due, and the runs that were missed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tuneyard.api.moments import moment_of, written
from tuneyard.api.schedule import ScheduleGoal
from tuneyard.api.schedule_status import ScheduledRun, ScheduleStatus
from tuneyard.schedules.names import run_name
from tuneyard.schedules.news import News
from tuneyard.schedules.passed import is_passed, with_passed
from tuneyard.schedules.starts import Start
from tuneyard.schedules.times import last_until, next_after, times_between

SUSPENDED = "suspended"
_MOST_COUNTED = 100
_MOST_RECORDED = 20


@dataclass(frozen=True)
class Due:
    """`status`: with the run, and with a record of each missed one; `start`: the run to start; `news`: about missed runs."""

    status: ScheduleStatus
    start: Start | None = None
    news: tuple[News, ...] = ()


def due_run(name: str, goal: ScheduleGoal, status: ScheduleStatus, created: datetime, now: datetime) -> Due:
    """The run that is due. Of several, only the last is made up for, and only within `startingDeadline`.

    A run of the time before the cron line was edited, before the Schedule was resumed, or of a time that a clock which was set back passes
    a second time, is not due.
    """
    line = SUSPENDED if goal.suspend else f"{goal.cron} {goal.time_zone}"
    if status.followed and status.followed != line:
        status = status.model_copy(update={"followed_since": written(now)})
    status = status.model_copy(update={"followed": line, "next_run": None if goal.suspend else _next(goal, now)})
    if goal.suspend:
        return Due(status.model_copy(update={"message": SUSPENDED}))
    since = max(moment_of(status.last_run) if status.last_run else created, _followed_since(status) or created)
    if since > now:  # the clock was set back: runs on record are not due again
        since = now
        status = status.model_copy(update={"last_run": written(now), "followed_since": status.followed_since and written(now)})
    last = last_until(goal.cron, goal.time_zone, now)
    start = Start(run_name(name, last), last)
    if status.message == SUSPENDED:
        status = status.model_copy(update={"message": ""})
    if last <= since:
        return Due(status)
    if is_passed(status.passed, last):
        return Due(status.model_copy(update={"last_run": written(last)}))
    if any(record.name == start.name for record in status.runs):  # it was started before a kill
        follows = times_between(goal.cron, goal.time_zone, since, last, 1) == [last]
        passed = with_passed(status.passed, status.last_run if follows else None, last)
        return Due(status.model_copy(update={"last_run": written(last), "passed": passed}))
    return _missed(name, goal, status, since, start, now)


def _followed_since(status: ScheduleStatus) -> datetime | None:
    return moment_of(status.followed_since) if status.followed_since else None


def _next(goal: ScheduleGoal, now: datetime) -> str:
    return written(next_after(goal.cron, goal.time_zone, now))


def _missed(name: str, goal: ScheduleGoal, status: ScheduleStatus, since: datetime, start: Start, now: datetime) -> Due:
    earlier = [moment for moment in times_between(goal.cron, goal.time_zone, since, start.due, _MOST_COUNTED) if moment < start.due]
    earlier = [moment for moment in earlier if not is_passed(status.passed, moment)]
    known = {record.name for record in status.runs}
    late = "it was not started in its time, and a later run was due"
    lost = [record for record in (_record(name, moment, now, late) for moment in earlier) if record.name not in known]
    message = f"{len(lost)} runs were missed while nobody followed the Schedule" if lost else ""
    late_s = (now - start.due).total_seconds()
    if goal.starting_deadline is not None and late_s > goal.starting_deadline:
        why = f"{late_s:.0f} s late, startingDeadline is {goal.starting_deadline:g} s"
        message = f"the run of {written(start.due)} was skipped: {why}"
        lost.append(_record(name, start.due, now, why))
    runs = [*status.runs, *lost[-_MOST_RECORDED:]]
    told = goal.notify is not None and "missed" in goal.notify.on
    if told and lost:
        runs[-1] = runs[-1].model_copy(update={"notice": "due"})  # one message for all of them
    follows = status.last_run if not earlier else None
    passed = with_passed(status.passed, follows, start.due)
    after = status.model_copy(update={"last_run": written(start.due), "message": message, "runs": runs, "passed": passed})
    news = (News("missed", lost[-1].name, message),) if lost else ()
    is_late = bool(lost) and lost[-1].name == start.name
    return Due(after, None if is_late else start, news)


def _record(name: str, due: datetime, now: datetime, why: str) -> ScheduledRun:
    return ScheduledRun(
        name=run_name(name, due), due=written(due), phase="Missed", started_at=written(now), verdict="missed", message=why[:500]
    )
