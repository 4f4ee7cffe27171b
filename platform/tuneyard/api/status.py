"""What the hub reports about a job; never holds a secret's value."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field

from tuneyard.api.base import Fields


class Phase(StrEnum):
    PENDING = "Pending"
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    PREEMPTED = "Preempted"
    CANCELLED = "Cancelled"

    @property
    def final(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)


class Condition(Fields):
    """Kubernetes' own form of a condition."""

    type: str
    status: str = Field(pattern="^(True|False|Unknown)$")
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class Progress(Fields):
    step: int = Field(default=0, ge=0)
    of: int = Field(default=0, ge=0)
    eta_s: float | None = None
    loss: float | None = None
    tokens_per_s: float | None = None
    mfu: float | None = None


class PlacementStatus(Fields):
    cluster: str
    sku: str
    workers: int = Field(ge=1)


class Attempt(Fields):
    """One start of a task; `token` is the fencing token that its commits carry."""

    number: int = Field(ge=1)
    task: str
    token: int = Field(ge=0)
    placement: PlacementStatus | None = None
    phase: Phase = Phase.STARTING
    started_at: str | None = None
    ended_at: str | None = None
    failure: str | None = Field(default=None, description="failure kind")
    message: str = ""


class TaskStatus(Fields):
    name: str
    phase: Phase = Phase.PENDING
    progress: Progress = Field(default_factory=Progress)
    message: str = ""
    metrics: dict[str, Any] = Field(default_factory=dict)


class Usage(Fields):
    gpu_hours: float = 0.0
    cost: float = 0.0


class JobStatus(Fields):
    model_config = ConfigDict(extra="ignore")

    phase: Phase = Phase.PENDING
    message: str = Field(default="", description="what is going on, and what a person can do about it")
    observed_generation: int | None = None
    conditions: list[Condition] = Field(default_factory=list)
    placement: PlacementStatus | None = None
    attempts: list[Attempt] = Field(default_factory=list)
    tasks: list[TaskStatus] = Field(default_factory=list)
    progress: Progress = Field(default_factory=Progress)
    usage: Usage = Field(default_factory=Usage)
    artifacts: list[str] = Field(default_factory=list)
