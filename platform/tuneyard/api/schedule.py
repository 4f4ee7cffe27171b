"""Schedule: a JobSpec with a cron line, such as nightly scoring. ModelTemplate: defaults that jobs share."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, StringConstraints, field_validator, model_validator

from tuneyard.api.base import Fields, Name, Resource, located
from tuneyard.api.cron import local_times
from tuneyard.api.jobspec import Job
from tuneyard.api.moments import Moment
from tuneyard.api.quantities import Duration
from tuneyard.api.schedule_parts import FIGURE_PATTERN, MOST_LIMITS, Backfill, Limit, Notify, WaitFor
from tuneyard.api.schedule_status import ScheduleStatus
from tuneyard.metrics import FIGURES, harness_figure, own_figures

FixedPath = Annotated[str, StringConstraints(pattern=r"^(job|train|score|rank|resources)(\.[A-Za-z][A-Za-z0-9]*)+$", max_length=500)]
_FIELD = r"[0-9A-Za-z*/,#?-]+"
CRON_PATTERN = rf"^{_FIELD}( +{_FIELD}){{4}}$"
_ANY_YEAR = datetime(2026, 1, 1)  # croniter looks 50 years ahead, which include every date that exists


class JobTemplate(Fields):
    """The JobSpec that each run creates."""

    labels: dict[str, str] = Field(default_factory=dict, description="labels of each JobSpec, beside that of the Schedule")
    spec: Job = Field(
        description="`spec` of each JobSpec (docs/reference/jobspec.md), with `{{ run.date }}` in its texts (docs/schedules.md); it writes "
        "to its own folder, RUN, below storage.output"
    )


class ScheduleGoal(Fields):
    """Times of the runs, and the JobSpec to create."""

    cron: str = Field(
        pattern=CRON_PATTERN, max_length=100, description="five fields: minute hour day-of-month month day-of-week, such as 0 2 * * *"
    )
    time_zone: str = Field(default="UTC", max_length=64, description="name from the IANA data base, such as Europe/Amsterdam")
    concurrency: Literal["allow", "forbid", "replace"] = Field(
        default="forbid", description="when the last job still runs: start beside it, skip this run, or cancel that job"
    )
    starting_deadline: Duration | None = Field(
        default=None, description="a run that is late by more than this is skipped; default: runs are never too late"
    )
    history: int = Field(default=7, ge=0, le=1000, description="finished JobSpecs that are kept, the newest; older ones are removed")
    suspend: bool = Field(default=False, description="start nothing; runs that fall due meanwhile are skipped")
    wait_for: WaitFor | None = Field(default=None, description="data that must exist before a run starts; default: none")
    regression: dict[str, Limit] = Field(
        default_factory=dict,
        max_length=MOST_LIMITS,
        description="figure -> limits, such as {perplexity: {worseBy: 2%}}; default: none is watched",
    )
    notify: Notify | None = Field(default=None, description="a webhook that is told about runs; default: none")
    run_now: Moment | None = Field(
        default=None,
        description="start one run for this time, beside those of the cron line; another value starts another run; default: none",
    )
    backfill: Backfill | None = Field(default=None, description="start runs for dates of the past; default: none")
    accept: Name | None = Field(
        default=None,
        description="a run that has regressed: its figures are the measure of the runs after it; default: none",
    )
    template: JobTemplate

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"{value!r} is not an IANA time zone; write it like Europe/Amsterdam or UTC") from None
        return value

    @model_validator(mode="after")
    def _cron_line(self) -> Self:
        from croniter import CroniterBadDateError, croniter  # the client of a hub shows Schedules without it

        if len(self.cron.split()) != 5 or not croniter.is_valid(self.cron):
            raise ValueError(f"cron {self.cron!r} is not five valid fields; nightly at two is '0 2 * * *'")
        if any(field.lower().partition("/")[0] == "r" for field in self.cron.split()):
            raise ValueError(f"cron {self.cron!r} has a random field: it would name another time at each look")
        try:
            next(local_times(self.cron, _ANY_YEAR))
        except CroniterBadDateError:
            raise ValueError(f"cron {self.cron!r} names a date that does not exist, such as 30 February: it would never run") from None
        return self

    @model_validator(mode="after")
    def _known_figures(self) -> Self:
        for name, limit in self.regression.items():
            if not re.fullmatch(FIGURE_PATTERN, name):
                raise located(f"{name[:100]!r} is not the name of a figure, such as exact_match", "regression", name)
            relative = limit.worse_by is not None or limit.worse_by_absolute is not None
            if relative and self.limits[name].better is None:
                reason = f"{name!r} is none of: {', '.join(FIGURES)}; for another figure, say which values are better: {{better: higher}}"
                raise located(reason, "regression", name)
        return self

    @property
    def limits(self) -> dict[str, Limit]:
        """`regression`, each limit with the direction of its figure; `better` is None where no direction is known. Figures of own metrics
        have that of `ownMetrics` in the template, those of lm-evaluation-harness that of their metric."""
        scored = [task.score for task in self.template.spec.tasks if task.score is not None]
        known = {**own_figures(name for score in scored for name in score.own_metrics), **FIGURES}
        return {name: limit.directed(known.get(name) or harness_figure(name)) for name, limit in self.regression.items()}


class Schedule(Resource):
    """A job that runs on a schedule."""

    kind: Literal["Schedule"] = Field(default="Schedule", description="always Schedule")
    spec: ScheduleGoal
    status: ScheduleStatus | None = Field(default=None, description="the hub's report; not written by hand")


class ModelTemplateGoal(Fields):
    """The defaults."""

    description: str = Field(default="", description="one line that helps to choose among templates")
    job: dict[str, Any] = Field(
        default_factory=dict,
        description="defaults of the job itself: image, setup, env, storage, tracking, retries, placement, deadline, expectedDuration",
    )
    train: dict[str, Any] = Field(default_factory=dict, description="defaults of train tasks, as written in YAML; the JobSpec wins")
    score: dict[str, Any] = Field(default_factory=dict, description="defaults of score tasks, in the same form")
    rank: dict[str, Any] = Field(default_factory=dict, description="defaults of rank tasks, in the same form")
    resources: dict[str, Any] = Field(default_factory=dict, description="defaults of `resources` of these tasks, in the same form")
    fixed: list[FixedPath] = Field(
        default_factory=list,
        max_length=100,
        description="defaults that a job may not change, such as job.image, train.method or resources.sku",
    )


class ModelTemplate(Resource):
    """Defaults that a platform team shares with its data scientists."""

    kind: Literal["ModelTemplate"] = Field(default="ModelTemplate", description="always ModelTemplate")
    spec: ModelTemplateGoal
