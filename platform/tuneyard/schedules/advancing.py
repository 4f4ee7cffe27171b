"""One step of a Schedule: what to start, cancel and remove now, and its next status. Pure and repeatable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tuneyard.api.moments import moment_of, written
from tuneyard.api.schedule import ScheduleGoal
from tuneyard.api.schedule_status import ScheduledRun, ScheduleStatus, WaitingRun
from tuneyard.schedules.due_runs import due_run
from tuneyard.schedules.news import News
from tuneyard.schedules.outcomes import Run, trimmed, with_outcomes
from tuneyard.schedules.requests import requested_runs
from tuneyard.schedules.starts import Start
from tuneyard.schedules.waits import Look, sorted_by_data


@dataclass(frozen=True)
class ScheduleStep:
    """`start`: runs to create; `cancel`, `delete`: names of jobs; `status`: the Schedule's next status; `news`: to be told once the status
    is stored."""

    status: ScheduleStatus
    start: tuple[Start, ...] = ()
    cancel: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    news: tuple[News, ...] = ()


def advance_schedule(
    name: str,
    goal: ScheduleGoal,
    status: ScheduleStatus,
    created: datetime,
    runs: Sequence[Run],
    now: datetime,
    looks: Mapping[str, Look] | None = None,
) -> ScheduleStep:
    """The step that is due. `runs`: its jobs that exist; `looks`: the last look for the data of each run that waits, by its name.

    Raises BadExpression where the path of `waitFor` has no value.
    """
    status, told = with_outcomes(goal, _without_suspended(goal, status, now), runs, now)
    active = [run for run in runs if not run.phase.final]
    due = due_run(name, goal, status, created, now)
    waiting = [Start(each.name, moment_of(each.due), each.kind) for each in status.waiting]
    going = [*waiting, *(Start(run.name, run.due or run.created, run.kind) for run in active)]
    status, asked = requested_runs(name, goal, due.status, going, now)
    exist = {run.name for run in runs}  # created before a kill
    wanted = [start for start in (due.start, *asked) if start is not None and start.name not in exist]
    found = sorted_by_data(goal, status, wanted, looks or {}, now)
    status, starts, cancel = _allowed(goal, found.status, found.ready, active, status.waiting, now)
    names = {*(run.name for run in active if run.name not in cancel), *(start.name for start in starts)}
    finished = sorted((run for run in runs if run.phase.final), key=lambda run: (run.created, run.due or run.created), reverse=True)
    return ScheduleStep(
        status=status.model_copy(update={"active": sorted(names), "runs": trimmed(status.runs)}),
        start=starts,
        cancel=cancel,
        delete=tuple(run.name for run in finished[goal.history :]),
        news=(*told, *due.news, *found.news),
    )


def _allowed(
    goal: ScheduleGoal, status: ScheduleStatus, ready: Sequence[Start], active: Sequence[Run], waited: Sequence[WaitingRun], now: datetime
) -> tuple[ScheduleStatus, tuple[Start, ...], tuple[str, ...]]:
    """The runs that start under `concurrency`, with a record of each, and the jobs to cancel. Runs on demand start in any case.

    `waited`: runs that have waited for their data until now. `forbid` skips none of them, since their dates would be lost: they wait on,
    and start one after the other.
    """
    due = [start for start in ready if start.kind == "scheduled"]
    going = [run.name for run in active if run.kind == "scheduled"]
    left_out: dict[str, str] = {}
    if goal.concurrency == "forbid":
        runs_on = going[0] if going else due[0].name if due else ""
        left_out = {start.name: f"{runs_on} still runs, concurrency is forbid" for start in (due if going else due[1:])}
    elif goal.concurrency == "replace":
        left_out = {start.name: f"{due[-1].name} replaces it, concurrency is replace" for start in due[:-1]}
    starts = tuple(start for start in ready if start.name not in left_out)
    held = [each for each in waited if each.name in left_out and goal.concurrency == "forbid"]
    skipped = [start for start in due if start.name in left_out and start.name not in {each.name for each in held}]
    records = [_record(start, now) for start in starts]
    records += [_record(start, now, phase="Skipped", verdict="skipped", message=left_out[start.name]) for start in skipped]
    known = {record.name for record in status.runs}
    changes: dict[str, Any] = {"runs": [*status.runs, *(record for record in records if record.name not in known)]}
    if held:
        still = [each.model_copy(update={"message": left_out[each.name]}) for each in held]
        changes["waiting"] = sorted([*still, *status.waiting], key=lambda each: moment_of(each.due))
    if skipped:
        changes["message"] = f"the run of {written(skipped[-1].due)} was skipped: {left_out[skipped[-1].name]}"
    return status.model_copy(update=changes), starts, tuple(going) if due and goal.concurrency == "replace" else ()


def _without_suspended(goal: ScheduleGoal, status: ScheduleStatus, now: datetime) -> ScheduleStatus:
    """A suspended Schedule waits for no data of runs that were due before."""
    held = [each for each in status.waiting if each.kind == "scheduled"] if goal.suspend else []
    if not held:
        return status
    why = "the Schedule was suspended while it waited for its data"
    starts = [Start(each.name, moment_of(each.due), each.kind) for each in held]
    records = [_record(start, now, phase="Skipped", verdict="skipped", message=why) for start in starts]
    return status.model_copy(update={"waiting": [each for each in status.waiting if each not in held], "runs": [*status.runs, *records]})


def _record(start: Start, now: datetime, *, phase: str = "Pending", verdict: str = "", message: str = "") -> ScheduledRun:
    return ScheduledRun(
        name=start.name, due=written(start.due), kind=start.kind, phase=phase, started_at=written(now), verdict=verdict, message=message
    )
