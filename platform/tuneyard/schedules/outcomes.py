"""Outcomes: brings the records of runs up to date with the jobs that exist, and judges runs that have ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tuneyard.api import Phase
from tuneyard.api.moments import written
from tuneyard.api.schedule import ScheduleGoal
from tuneyard.api.schedule_status import MOST_RUNS, RunFigure, RunKind, ScheduledRun, ScheduleStatus
from tuneyard.metrics import FIGURES
from tuneyard.schedules.conditions import with_condition
from tuneyard.schedules.last_good import IS_MEASURE, measure_after, measure_before
from tuneyard.schedules.news import News
from tuneyard.schedules.regression import judge

REGRESSED = "Regressed"
_OPEN = ("", "lost")
"""Verdicts of runs that go on, as far as is known."""
_LONGEST = 500
_LONGEST_WHY = 300
_LONGEST_URI = 1024
_MOST_FIGURES = 16
_LOW, _HIGH = ".low", ".high"
"""Endings of the names under which a status reports the bounds of a figure."""
_CHANGE, _ROWS = ".change", ".change.rows"
"""Endings of the names under which it reports the difference from the last good run over the same rows, and their number."""
NOT_COMPARED = "rows_not_compared"
"""The name under which a task reports why its rows were not compared with those of the last good run."""


@dataclass(frozen=True)
class Run:
    """A job that the Schedule has created."""

    name: str
    created: datetime
    phase: Phase
    due: datetime | None = None
    kind: RunKind = "scheduled"
    figures: tuple[RunFigure, ...] = ()
    finished: str | None = None
    message: str = ""
    output: str = ""
    rows_compared_with: str = ""
    """The run whose rows its tasks were to compare."""
    rows_not_compared: str = ""
    """Why a task has not compared its rows."""


def figures_of(tasks: Mapping[str, Mapping[str, Any]], watched: Sequence[str]) -> tuple[RunFigure, ...]:
    """Figures of a run that belong to a metric or are `watched`, from numbers by task and name. Bounds are named NAME.low and NAME.high."""
    found = []
    for task, numbers in tasks.items():
        for name in [name for name in numbers if name in FIGURES or name in watched]:
            value, low, high = _with_bounds(numbers, name)
            if value is not None:
                figure = RunFigure(task=task, name=name, value=value, low=low, high=high)
                found.append(figure.model_copy(update=_changes(numbers, name)))
    return tuple(sorted(found, key=lambda figure: figure.name not in watched)[:_MOST_FIGURES])


def why_not_compared(tasks: Mapping[str, Mapping[str, Any]]) -> str:
    """Why tasks of a run have not compared their rows with those of the last good run; empty: they have, or were not asked to."""
    told = {task: numbers[NOT_COMPARED] for task, numbers in tasks.items() if isinstance(numbers.get(NOT_COMPARED), str)}
    return "; ".join(f"{task}: {why}" if len(tasks) > 1 else why for task, why in told.items())


def _with_bounds(numbers: Mapping[str, Any], name: str) -> tuple[float | None, ...]:
    return tuple(_number(numbers.get(each)) for each in (name, name + _LOW, name + _HIGH))


def _changes(numbers: Mapping[str, Any], name: str) -> dict[str, Any]:
    change, low, high = _with_bounds(numbers, name + _CHANGE)
    rows = _number(numbers.get(name + _ROWS))
    if change is None or low is None or high is None or rows is None:
        return {}
    return {"change": change, "change_low": low, "change_high": high, "change_rows": max(0, int(rows))}


def with_outcomes(
    goal: ScheduleGoal, status: ScheduleStatus, runs: Sequence[Run], now: datetime
) -> tuple[ScheduleStatus, tuple[News, ...]]:
    """`status` with a record of each run as it is now, and the news about runs that have ended since."""
    there = {run.name: run for run in runs}
    records = [*status.runs, *_adopted(status.runs, runs)]
    is_first = not status.followed  # an earlier version kept no records: what has ended by now is no news
    news: list[News] = []
    for index in sorted(range(len(records)), key=lambda index: records[index].due):  # earlier runs are the baseline of later ones
        before = records[index]
        after = _followed(before, there.get(before.name), now)
        if after is before:
            continue
        records[index] = after = _judged(goal, after, records)
        news += [] if is_first else _news(goal, after, records)
        if _is_told(goal, after, news):
            records[index] = after.model_copy(update={"notice": "due"})
    news += _accepted(goal, records)
    conditions = _with_regressed(goal, status, records, now)
    return status.model_copy(update={"runs": trimmed(records), "conditions": conditions}), tuple(news)


def trimmed(records: Sequence[ScheduledRun]) -> list[ScheduledRun]:
    """The last records, with all runs that go on and the newest good one, which later runs are compared with."""
    spare = len(records) - MOST_RUNS
    best = max((record for record in records if record.verdict in IS_MEASURE), key=lambda record: record.due, default=None)
    return [record for index, record in enumerate(records) if index >= spare or record.verdict in _OPEN or record is best]


def _adopted(records: Sequence[ScheduledRun], runs: Sequence[Run]) -> list[ScheduledRun]:
    """Records of runs without one: the hub was killed before it stored the status. Runs whose records were dropped stay without."""
    known = {record.name for record in records}
    has_room = len(records) < MOST_RUNS
    return [
        ScheduledRun(name=run.name, due=written(run.due or run.created), kind=run.kind, started_at=written(run.created))
        for run in sorted(runs, key=lambda run: run.created)
        if run.name not in known and (has_room or not run.phase.final)
    ]


def with_notices(status: ScheduleStatus, told: Mapping[str, str]) -> ScheduleStatus:
    """`status` with the outcome of each message that was sent, by the name of its run."""
    runs = [record.model_copy(update={"notice": told[record.name][:300]}) if record.name in told else record for record in status.runs]
    return status.model_copy(update={"runs": runs})


def _followed(record: ScheduledRun, run: Run | None, now: datetime) -> ScheduledRun:
    """The record with the phase of its run; the record itself if nothing has changed."""
    if run is None:
        if record.verdict != "":
            return record
        return record.model_copy(
            update={
                "phase": "Cancelled",
                "verdict": "lost",
                "finished_at": written(now),
                "message": "its JobSpec was deleted before it ended",
            }
        )
    if record.phase == run.phase and (record.verdict not in _OPEN or not run.phase.final):
        return record
    finished = (run.finished or written(now)) if run.phase.final else None
    changes = {"phase": str(run.phase), "finished_at": finished, "verdict": "", "message": "", "compared_with": ""}
    changes |= {"rows_compared_with": run.rows_compared_with, "output": run.output[:_LONGEST_URI]}
    changes |= {"rows_not_compared": run.rows_not_compared[:_LONGEST_WHY]}
    return record.model_copy(update={**changes, "figures": list(run.figures), "message": run.message[:_LONGEST]})


def _judged(goal: ScheduleGoal, record: ScheduledRun, records: Sequence[ScheduledRun]) -> ScheduledRun:
    if record.verdict == "lost" or record.phase not in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED):
        return record
    if record.phase != Phase.SUCCEEDED:
        return record.model_copy(update={"verdict": record.phase.lower()})
    baseline = measure_before(records, record.due)
    is_paired = baseline is not None and record.rows_compared_with == baseline.name
    found = judge(goal.limits, record.figures, baseline, is_paired=is_paired)
    return record.model_copy(
        update={
            "verdict": found.verdict,
            "message": found.message[:_LONGEST],
            "compared_with": found.compared_with if goal.regression else "",
            "rows_compared_with": record.rows_compared_with if found.is_paired else "",
            "rows_not_compared": _why_unpaired(record, baseline)[:_LONGEST_WHY] if found.compared_with and not found.is_paired else "",
        }
    )


def _why_unpaired(record: ScheduledRun, baseline: ScheduledRun | None) -> str:
    """Why the figures of a run were compared as those of other rows."""
    assert baseline is not None
    if not record.rows_compared_with:
        return f"the output of {baseline.name} was not known, or was not good yet, when the run started"
    if record.rows_compared_with != baseline.name:
        return f"the run read the rows of {record.rows_compared_with}, and {baseline.name} is the last good one now"
    return record.rows_not_compared or "no watched figure has a change per row"


def _news(goal: ScheduleGoal, record: ScheduledRun, records: Sequence[ScheduledRun]) -> list[News]:
    if record.verdict in ("regressed", "failed"):
        return [News(record.verdict, record.name, record.message)]  # type: ignore[arg-type]
    if record.verdict != "good" or not goal.regression:
        return []
    measured = [each for each in records if each.verdict in (*IS_MEASURE, "regressed") and each.due < record.due]
    last = max(measured, key=lambda each: each.due, default=None)
    if last is None or last.verdict != "regressed" or any(each.due > record.due and each.verdict in IS_MEASURE for each in records):
        return []
    return [News("recovered", record.name, f"its figures are as good as those of {record.compared_with or 'the limits'} again")]


def _accepted(goal: ScheduleGoal, records: list[ScheduledRun]) -> list[News]:
    """Accept the run that `spec.accept` names, in `records`, once it has regressed. After a later good run it would have no effect."""
    for index, record in enumerate(records):
        if record.name == goal.accept and record.verdict == "regressed" and measure_after(records, record.due) is None:
            message = f"accepted as the new measure: {record.message}"[:_LONGEST]
            records[index] = record.model_copy(update={"verdict": "accepted", "message": message})
            return [News("accepted", record.name, message)]
    return []


def _is_told(goal: ScheduleGoal, record: ScheduledRun, news: Sequence[News]) -> bool:
    return goal.notify is not None and any(each.run == record.name and each.occasion in goal.notify.on for each in news)


def _with_regressed(goal: ScheduleGoal, status: ScheduleStatus, records: Sequence[ScheduledRun], now: datetime) -> list[Any]:
    """The conditions, with `Regressed` by the newest run that was measured."""
    measured = [record for record in records if record.verdict in (*IS_MEASURE, "regressed", "unmeasured")]
    newest = max(measured, key=lambda record: record.due, default=None)
    if not goal.regression or newest is None:
        return [each for each in status.conditions if each.type != REGRESSED]
    value = {"good": "False", "accepted": "False", "regressed": "True"}.get(newest.verdict, "Unknown")
    reason = {"good": "AsGoodAsBefore", "accepted": "Accepted", "regressed": "Worse"}.get(newest.verdict, "NotMeasured")
    message = f"{newest.name}: {newest.message}" if newest.message else f"measured in {newest.name}"
    return with_condition(status.conditions, REGRESSED, value, reason, message, now)


def _number(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) and abs(value) < 1e15 else None
