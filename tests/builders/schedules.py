"""Builders for Schedules and their runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tuneyard.api import Phase
from tuneyard.api.schedule import ScheduleGoal
from tuneyard.api.schedule_status import RunFigure, ScheduleStatus
from tuneyard.schedules import Look, Run, ScheduleStep, Start, advance_schedule

MONDAY = datetime(2026, 11, 23, tzinfo=UTC)
TEMPLATE: dict[str, dict[str, Any]] = {"spec": {"tasks": [{"name": "score", "process": {"command": ["true"]}}]}}


def nightly(**changes: Any) -> ScheduleGoal:
    return ScheduleGoal.model_validate({"cron": "0 2 * * *", "template": TEMPLATE, **changes})


def at_hour(hours: float) -> datetime:
    return MONDAY + timedelta(hours=hours)


def figure(value: float, half: float | None = None, name: str = "exact_match") -> RunFigure:
    bounds = {} if half is None else {"low": value - half, "high": value + half}
    return RunFigure(task="judge", name=name, value=value, **bounds)


class Nights:
    """A Schedule whose steps are done at once: what it starts exists, and runs until the test ends it."""

    def __init__(self, goal: ScheduleGoal, created: datetime = MONDAY, name: str = "nightly") -> None:
        self.goal, self.created, self.name = goal, created, name
        self.status = ScheduleStatus()
        self.runs: dict[str, Run] = {}
        self.started: list[Start] = []
        self.news: list[str] = []

    def look(self, now: datetime, looks: Mapping[str, Look] | None = None, *, killed: bool = False) -> ScheduleStep:
        """One step. `killed`: the hub is killed after the jobs were created, and before the status is stored."""
        step = advance_schedule(self.name, self.goal, self.status, self.created, [*self.runs.values()], now, looks)
        for name in step.cancel:
            self.end(name, Phase.CANCELLED)
        for start in step.start:
            if start.name not in self.runs:
                self.started.append(start)
                self.runs[start.name] = Run(start.name, now, Phase.RUNNING, start.due, start.kind)
        if not killed:
            self.status = ScheduleStatus.model_validate(step.status.model_dump(mode="json", by_alias=True))
            self.news += [each.reason for each in step.news]
            for name in step.delete:
                del self.runs[name]
        return step

    def end(self, name: str, phase: Phase = Phase.SUCCEEDED, *figures: RunFigure, against: str = "") -> None:
        """`against`: the run whose rows it has read."""
        run = self.runs[name]
        self.runs[name] = Run(name, run.created, phase, run.due, run.kind, figures, rows_compared_with=against)

    def night(self, day: int, *figures: RunFigure, phase: Phase = Phase.SUCCEEDED) -> str:
        """The run of one night, from its start to its end. Returns its verdict."""
        (start,) = self.look(at_hour(24 * day + 2)).start
        self.end(start.name, phase, *figures)
        self.look(at_hour(24 * day + 3))
        return next(run.verdict for run in self.status.runs if run.name == start.name)

    @property
    def verdicts(self) -> list[str]:
        return [run.verdict for run in self.status.runs]

    def condition(self, kind: str) -> str:
        return next((each.status for each in self.status.conditions if each.type == kind), "")
