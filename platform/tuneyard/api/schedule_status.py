"""The report about a Schedule: by the hub as its status, by `tuneyard schedule run` in a file. It never holds a secret's value."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tuneyard.api.base import StatusFields
from tuneyard.api.moments import Moment
from tuneyard.api.status import Condition

RunKind = Literal["scheduled", "now", "backfill"]
MOST_RUNS = 100
"""Runs that a status keeps."""
MOST_SPANS = 20
"""Spans of due times that a status keeps. Each time without a hub or runner, and each clock that was set, makes another one. Two old ones
then become one."""


class RunFigure(StatusFields):
    """One figure of one score task of a run."""

    task: str = Field(description="name of the task")
    name: str = Field(description="name of the figure, as in report.json")
    value: float = Field(description="value of the figure")
    low: float | None = Field(default=None, description="lower bound at 95 % confidence; default: unknown")
    high: float | None = Field(default=None, description="upper bound at 95 % confidence; default: unknown")
    change: float | None = Field(
        default=None, description="value less that of the last good run, over the same rows; default: the rows were not compared"
    )
    change_low: float | None = Field(default=None, description="lower bound of `change` at 95 % confidence; default: unknown")
    change_high: float | None = Field(default=None, description="upper bound of `change` at 95 % confidence; default: unknown")
    change_rows: int | None = Field(default=None, ge=0, description="rows of both runs that have the figure; default: unknown")


class ScheduledRun(StatusFields):
    """One run, or one that was left out."""

    name: str = Field(description="name of the run and of its JobSpec")
    due: Moment = Field(description="when it was due (RFC 3339)")
    kind: RunKind = Field(default="scheduled", description="scheduled: by the cron line; now: by spec.runNow; backfill: by spec.backfill")
    phase: str = Field(default="Pending", description="phase of the job, or Missed or Skipped where none was started")
    started_at: Moment | None = Field(default=None, description="when it was started or left out (RFC 3339); default: unknown")
    finished_at: Moment | None = Field(default=None, description="when it ended (RFC 3339); default: it goes on")
    figures: list[RunFigure] = Field(default_factory=list, max_length=16, description="figures of its score tasks")
    verdict: str = Field(
        default="",
        description="good, regressed, unmeasured (a figure is missing), failed, cancelled, missed, skipped, lost, or accepted as the new "
        "measure; empty: it goes on",
    )
    message: str = Field(default="", max_length=500, description="reason of the verdict, for people")
    compared_with: str = Field(default="", description="the good run that it was compared with")
    rows_compared_with: str = Field(
        default="",
        description="the run whose rows it was compared with, one by one; empty: its figures were compared as those of other rows",
    )
    rows_not_compared: str = Field(
        default="", max_length=300, description="why its figures were compared as those of other rows; empty: they were not"
    )
    output: str = Field(default="", max_length=1024, description="URI of its output; empty: unknown")
    notice: str = Field(
        default="", max_length=300, description="state of the message to the webhook: due, sent, or why it could not be sent"
    )


class WaitingRun(StatusFields):
    """A run whose data have not arrived."""

    name: str = Field(description="name that the run will have")
    due: Moment = Field(description="when it was due (RFC 3339)")
    kind: RunKind = Field(default="scheduled", description="as in `runs`")
    since: Moment = Field(description="when it began to wait (RFC 3339)")
    path: str = Field(default="", description="URI of the data")
    message: str = Field(default="", max_length=300, description="why the data could not be looked for; empty: they do not exist yet")


class BackfillStatus(StatusFields):
    """Progress of spec.backfill."""

    key: str = Field(description="stands for the dates and the id of the request")
    last: Moment | None = Field(default=None, description="due time of its newest run that was started (RFC 3339); default: none")
    started: int = Field(default=0, ge=0, description="runs that were started")
    of: int = Field(default=0, ge=0, description="runs in all")
    done: bool = Field(default=False, description="all runs were started, or none can be")
    message: str = Field(default="", max_length=300, description="why it runs nothing; empty: it can run")


class DueSpan(StatusFields):
    """Due times, one after the other, that a Schedule has passed."""

    first: Moment = Field(description="the first one (RFC 3339)")
    last: Moment = Field(description="the last one (RFC 3339)")


class ScheduleStatus(StatusFields):
    """State of the runs, as the hub reports it."""

    last_run: Moment | None = Field(default=None, description="when the last run was due (RFC 3339)")
    next_run: Moment | None = Field(default=None, description="when the next run is due (RFC 3339)")
    active: list[str] = Field(default_factory=list, description="names of JobSpecs that have not ended")
    message: str = Field(default="", description="why the last run was skipped or could not be created")
    conditions: list[Condition] = Field(
        default_factory=list,
        description="`Regressed`: whether the newest measured run has regressed; `DataArrived`: whether the newest run had its data; "
        "`Stalled` if the hub cannot follow the Schedule, with the reason",
    )
    followed: str = Field(default="", description="cron line and time zone that are followed, or `suspended`")
    followed_since: Moment | None = Field(
        default=None, description="when `followed` changed last (RFC 3339): no run that was due before starts; default: it never changed"
    )
    passed: list[DueSpan] = Field(
        default_factory=list,
        max_length=MOST_SPANS,
        description="due times that are over: a clock that is set back starts none of them again",
    )
    waiting: list[WaitingRun] = Field(default_factory=list, description="runs whose data have not arrived")
    runs: list[ScheduledRun] = Field(default_factory=list, description=f"the last {MOST_RUNS} runs, oldest first")
    run_now: Moment | None = Field(default=None, description="the value of spec.runNow that was started last")
    backfill: BackfillStatus | None = Field(default=None, description="progress of spec.backfill")
