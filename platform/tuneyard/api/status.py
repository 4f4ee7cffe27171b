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
    summary: str = Field(default="", description="for tables: `40/120`, or the stage of work outside the steps")


class PlacementStatus(Fields):
    """`nodes`: worker slots taken per node."""

    cluster: str
    sku: str
    workers: int = Field(ge=1)
    gpus: int = Field(default=0, ge=0, description="GPUs, or worker slots on cpu, that the gang takes")
    pods: int = Field(default=1, ge=0, description="worker pods, all of one size; 0 for a process task, which runs on the head")
    nodes: dict[str, int] = Field(default_factory=dict)
    price_per_gpu_hour: float = Field(default=0.0, ge=0, description="of the SKU there, when it was placed")
    seconds: float | None = Field(default=None, ge=0, description="how long the task was predicted to take there")


class Attempt(Fields):
    """One start of a task; `token` is the fencing token that its commits carry."""

    number: int = Field(ge=1)
    task: str
    token: int = Field(ge=0)
    name: str = Field(default="", description="name of its RayJob, AttemptReport and Secret on the member")
    placement: PlacementStatus | None = None
    phase: Phase = Phase.STARTING
    created: bool = Field(default=False, description="its RayJob was seen: absent from here on means lost, never started twice")
    stopping: str = Field(default="", description="why it was asked to stop: Cancelled, Preempted, Deadline")
    stopped_for: str = Field(default="", description="whom a preempted attempt makes room for, and why it was chosen")
    placed_at: str | None = None
    started_at: str | None = Field(default=None, description="when its ranks began")
    stop_asked_at: str | None = None
    ended_at: str | None = None
    cleaned: bool = Field(default=False, description="nothing of it is left on the member")
    resumed_from: int = Field(default=0, ge=0)
    last_step: int = Field(default=0, ge=0)
    checkpoint_step: int = Field(default=0, ge=0)
    checkpoint_at: str | None = Field(default=None, description="when the hub first heard of that checkpoint")
    failure: str | None = Field(default=None, description="failure kind")
    message: str = ""
    next_step: str = ""
    failed_node: str = ""
    log_tail: str = ""


class TaskStatus(Fields):
    name: str
    phase: Phase = Phase.PENDING
    progress: Progress = Field(default_factory=Progress)
    message: str = ""
    metrics: dict[str, Any] = Field(default_factory=dict)
    artifacts: list[str] = Field(default_factory=list)


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
    output: str = Field(default="", description="URI of checkpoints, artifacts, logs and the report")
    expected_start: str | None = Field(default=None, description="when it is predicted to start, while it waits")
    started_at: str | None = None
    finished_at: str | None = None
