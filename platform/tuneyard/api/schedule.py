"""Schedule: a JobSpec on a cron line, such as nightly scoring. ModelTemplate: defaults that jobs share."""

from __future__ import annotations

from typing import Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, Field, field_validator, model_validator

from tuneyard.api.base import Fields, Resource
from tuneyard.api.jobspec import Job
from tuneyard.api.quantities import Duration


class JobTemplate(Fields):
    labels: dict[str, str] = Field(default_factory=dict)
    spec: Job


class ScheduleGoal(Fields):
    cron: str = Field(description="five fields: minute hour day-of-month month day-of-week, such as 0 2 * * *")
    time_zone: str = Field(default="UTC", description="name from the IANA data base, such as Europe/Amsterdam")
    concurrency: Literal["allow", "forbid", "replace"] = Field(default="forbid", description="when the last job still runs")
    starting_deadline: Duration | None = Field(default=None, description="a start missed by more than this is skipped")
    history: int = Field(default=7, ge=0, description="finished jobs that stay")
    suspend: bool = False
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
        from croniter import croniter

        if len(self.cron.split()) != 5 or not croniter.is_valid(self.cron):
            raise ValueError(f"cron {self.cron!r} is not five valid fields; nightly at two is '0 2 * * *'")
        return self


class ScheduleStatus(Fields):
    model_config = ConfigDict(extra="ignore")

    last_run: str | None = None
    next_run: str | None = None
    active: list[str] = Field(default_factory=list)
    message: str = ""


class Schedule(Resource):
    """A job that runs on a schedule."""

    kind: Literal["Schedule"] = "Schedule"
    spec: ScheduleGoal
    status: ScheduleStatus | None = None


class ModelTemplateGoal(Fields):
    description: str = ""
    train: dict[str, Any] = Field(default_factory=dict, description="defaults of train tasks, as written in YAML; the JobSpec wins")
    score: dict[str, Any] = Field(default_factory=dict, description="defaults of score tasks")
    resources: dict[str, Any] = Field(default_factory=dict)


class ModelTemplate(Resource):
    """Defaults that a platform team shares with its data scientists."""

    kind: Literal["ModelTemplate"] = "ModelTemplate"
    spec: ModelTemplateGoal
