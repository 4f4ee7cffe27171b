"""The hub's report about a job. It never holds a secret's value."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tuneyard.api.base import StatusFields
from tuneyard.api.moments import Moment


class Phase(StrEnum):
    """Phase of a job, a task or an attempt."""

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


class Condition(StatusFields):
    """Kubernetes' own form of a condition."""

    type: str = Field(description="judged property, such as Accepted")
    status: str = Field(pattern="^(True|False|Unknown)$", description="True, False or Unknown")
    reason: str = Field(default="", description="cause in one word, for programs")
    message: str = Field(default="", description="cause in a sentence, for people")
    last_transition_time: Moment | None = Field(default=None, description="when `status` changed last (RFC 3339)")
    observed_generation: int | None = Field(default=None, description="generation of the object that was judged")


class Progress(StatusFields):
    """Progress of a task."""

    step: int = Field(default=0, ge=0, description="steps done: optimizer steps, rows of a score task, or trials of a search")
    of: int = Field(default=0, ge=0, description="steps in all; 0: not known yet")
    eta_s: float | None = Field(default=None, description="seconds to the end, as predicted")
    loss: float | None = Field(default=None, description="training loss of the last step, nats per token")
    tokens_per_s: float | None = Field(default=None, description="tokens per second of all workers together")
    rows_per_s: float | None = Field(default=None, description="rows per second of all workers together, of tasks without tokens")
    mfu: float | None = Field(default=None, description="model FLOPs utilisation, 0 to 1")
    data_wait: float | None = Field(
        default=None, description="share of the last minute's steps in which rank 0 waited for data, 0 to 1; absent: no train task"
    )
    checkpoint_wait: float | None = Field(
        default=None, description="share of the last half hour's steps in which training stood still for checkpoints, 0 to 1"
    )
    checkpoint_s: float | None = Field(default=None, description="seconds from the step of the last checkpoint to its commit")
    gpu_utilization: float | None = Field(
        default=None, description="share of the last ten seconds in which GPUs were busy, 0 to 1, as a mean over machines"
    )
    cpu_share: float | None = Field(
        default=None, description="share of the machines' processors that were busy, 0 to 1, as a mean over machines"
    )
    network_gb_per_s: float | None = Field(
        default=None, description="1e9 bytes that a machine sent to others in a second, as a mean over machines"
    )
    host_memory_gb: float | None = Field(default=None, description="memory in use on the fullest machine, in 1e9 bytes")
    planned_mfu: float | None = Field(default=None, description="model FLOPs utilisation by the plan of the attempt, 0 to 1")
    summary: str = Field(default="", description="for tables: `step 40/120`, or the stage of work outside the steps")


MOST_STAGES = 32
"""Stages of one attempt in a report and a status."""


class StageTime(StatusFields):
    """One stage of an attempt's work by the clock of its driver: loading the model, the first step, training, or a checkpoint."""

    name: str = Field(description="name of the stage, without its counts")
    began_at: Moment = Field(description="when it began (RFC 3339, to the millisecond)")
    ended_at: Moment | None = Field(default=None, description="when it ended; absent: it has not")
    step: int | None = Field(default=None, ge=0, description="step of a checkpoint")
    blocked_s: float | None = Field(default=None, ge=0, description="seconds for which training stood still for a checkpoint")


class StartTimes(StatusFields):
    """Milestones of the start of an attempt, by the clocks of its member. Each keeps the value that was seen first."""

    created_at: Moment | None = Field(default=None, description="when its RayJob was created")
    scheduled_at: Moment | None = Field(default=None, description="when the last pod of its gang got a node")
    running_at: Moment | None = Field(default=None, description="when the last container of its gang started: its image was pulled")
    ready_at: Moment | None = Field(default=None, description="when the last pod of its gang was ready: its Ray node is up")


class Reason(StatusFields):
    """Why a task waited, since when."""

    at: Moment = Field(description="since when (RFC 3339)")
    reason: str = Field(description="the scheduler's reason, for people")


class PlacementStatus(StatusFields):
    """Placement of a gang."""

    cluster: str = Field(description="name of the member")
    sku: str = Field(description="kind of machine")
    workers: int = Field(ge=1, description="ranks, or GPUs of all engines")
    gpus: int = Field(default=0, ge=0, description="GPUs, or worker slots on cpu, that the gang takes")
    pods: int = Field(default=1, ge=0, description="worker pods, all of one size; 0 for a process task, which runs on the head")
    nodes: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict, description="node -> GPUs (worker slots on cpu) that the gang takes there"
    )
    price_per_gpu_hour: float = Field(default=0.0, ge=0, description="price of the SKU there when the gang was placed")
    seconds: float | None = Field(default=None, ge=0, description="seconds that the task was predicted to take there")
    seconds_from: str = Field(
        default="",
        description="origin of the prediction: pace, given (expectedDuration), corrected (expectedDuration, scaled by the error of the "
        "team's earlier guesses), history (the latest runs of its Schedule), plan, or assumed if nothing is known of the task",
    )
    guessed_seconds: float | None = Field(
        default=None, ge=0, description="seconds there by expectedDuration alone, to be compared with the task's duration at its end"
    )


class StepLoss(StatusFields):
    """The loss of one step."""

    step: int = Field(ge=0, description="optimizer step")
    loss: float = Field(description="its loss")


class AttemptSummary(StatusFields):
    """The steps of one attempt together. Rates leave its first step out, which compiles and fills caches."""

    steps: int = Field(default=0, ge=0, description="optimizer steps of this attempt")
    step_s: float | None = Field(default=None, ge=0, description="mean seconds of a step")
    tokens_per_s: float | None = Field(default=None, ge=0, description="tokens per second over all workers")
    mfu: float | None = Field(default=None, ge=0, description="model FLOPs utilisation, 0 to 1, as a mean over time")
    memory_gb: float | None = Field(default=None, ge=0, description="peak memory of a rank, in 1e9 bytes")
    losses: list[StepLoss] = Field(default_factory=list, description="losses of evenly spaced steps, at most 16, and of the last one")


class Attempt(StatusFields):
    """One start of a task; `token` is the fencing token that its commits carry."""

    number: int = Field(ge=1, description="1 for the first attempt of the task")
    task: str = Field(description="name of the task")
    token: int = Field(ge=0, description="fencing token: commits with a lower one no longer count")
    name: str = Field(default="", description="name of its RayJob, AttemptReport and Secret on the member")
    placement: PlacementStatus | None = Field(default=None, description="placement of its gang")
    phase: Phase = Field(default=Phase.STARTING, description="phase of the attempt")
    created: bool = Field(default=False, description="its RayJob was seen: if it is absent later, it is lost, and not started again")
    stopping: str = Field(default="", description="why it was asked to stop: Cancelled, Preempted, Deadline")
    stopped_for: str = Field(default="", description="the job that a preempted attempt makes room for, and why this attempt was chosen")
    placed_at: Moment | None = Field(default=None, description="when its gang was placed (RFC 3339)")
    started_at: Moment | None = Field(default=None, description="when its ranks began (RFC 3339)")
    stop_asked_at: Moment | None = Field(default=None, description="when it was asked to stop (RFC 3339)")
    ended_at: Moment | None = Field(default=None, description="when it ended (RFC 3339)")
    cleaned: bool = Field(default=False, description="all its objects are removed from the member")
    resumed_from: int = Field(default=0, ge=0, description="step at which it started")
    asleep_at: int = Field(
        default=0, ge=0, description="generation of the JobSpec at which its server ended for lack of requests; 0: it did not"
    )
    woken_at: Moment | None = Field(default=None, description="when a request, or a change of the JobSpec, ended that sleep (RFC 3339)")
    door: Literal["", "opening", "open", "closing"] = Field(
        default="", description="the pod on its member that hears requests until a server answers again; empty: there is none"
    )
    last_step: int = Field(default=0, ge=0, description="last step that it reported")
    checkpoint_step: int = Field(default=0, ge=0, description="step of its newest committed checkpoint")
    checkpoint_at: Moment | None = Field(default=None, description="when the hub first saw that checkpoint")
    failure: str | None = Field(default=None, description="failure kind")
    charged: float | None = Field(
        default=None, ge=0, description="what endpoints charge for it, by the prices in the JobSpec; absent: not known, or nothing"
    )
    message: str = Field(default="", description="cause, for people")
    next_step: str = Field(default="", description="next step for a person")
    failed_node: str = Field(default="", description="node to blame, which later attempts avoid")
    log_tail: str = Field(default="", description="last lines of the rank that failed first")
    start: StartTimes | None = Field(default=None, description="milestones of its start on the member")
    stages: list[StageTime] = Field(default_factory=list, description="stages of its work as it reported them, in the order of their begin")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="its settings as it reported them, for run history; of the last attempts alone"
    )
    plan: dict[str, Any] = Field(
        default_factory=dict, description="its plan as it reported it: layout, memory, predicted speed; of the last attempts alone"
    )
    summary: AttemptSummary | None = Field(default=None, description="its steps as it reported them; of the last attempts alone")

    @property
    def sleeps(self) -> bool:
        """Whether its server has ended for lack of requests, and nothing has woken it since."""
        return bool(self.asleep_at) and self.woken_at is None


class TaskStatus(StatusFields):
    """State of one task."""

    name: str = Field(description="name of the task")
    phase: Phase = Field(default=Phase.PENDING, description="phase of the task")
    progress: Progress = Field(default_factory=Progress)
    message: str = Field(default="", description="current activity, or why the task waits")
    waits: list[Reason] = Field(default_factory=list, description="why the task has waited for placements, oldest first")
    owed_since: Moment | None = Field(default=None, description="when others were first asked to make room for it (RFC 3339)")
    metrics: dict[str, Any] = Field(default_factory=dict, description="figure -> value, as in report.json")
    artifacts: list[str] = Field(default_factory=list, description="URIs of its artifacts")


class TemplateStatus(StatusFields):
    """The ModelTemplate of a job at the placement of the first attempt."""

    name: str = Field(description="name of the ModelTemplate")
    spec: dict[str, Any] = Field(
        default_factory=dict, description="its spec at that time: later changes of the template do not affect a running job"
    )


class Usage(StatusFields):
    """Resources used by all attempts together."""

    gpu_hours: float = Field(default=0.0, description="GPU-hours (slot-hours on cpu)")
    cost: float = Field(default=0.0, description="price of these GPU-hours, in the currency of the Clusters")


_ATTEMPT = ("number", "task", "token", "name", "placement", "phase", "created", "stopping", "endedAt", "cleaned")
_SLEEP = ("asleepAt", "wokenAt", "door")
_PLACEMENT = ("cluster", "sku", "workers", "gpus", "pods", "nodes", "nodes.*")
_TASK = ("name", "phase")


class JobStatus(StatusFields):
    """The hub's report about a job."""

    vital: ClassVar[frozenset[str]] = frozenset(
        (
            *("phase", "attempts", "attempts.*", "tasks", "tasks.*", "template", "template.name", "template.spec"),
            *(f"attempts.*.{name}" for name in (*_ATTEMPT, *_SLEEP)),
            *(f"attempts.*.placement.{name}" for name in _PLACEMENT),
            *(f"tasks.*.{name}" for name in _TASK),
        )
    )

    phase: Phase = Field(default=Phase.PENDING, description="phase of the job")
    message: str = Field(default="", description="current activity, and the next step for a person")
    observed_generation: int | None = Field(default=None, description="generation of the JobSpec that the hub has seen")
    conditions: list[Condition] = Field(default_factory=list, description="state in the form of Kubernetes conditions")
    placement: PlacementStatus | None = Field(default=None, description="placement of the newest attempt")
    attempts: list[Attempt] = Field(default_factory=list, description="every start of every task, oldest first")
    tasks: list[TaskStatus] = Field(default_factory=list, description="state of each task")
    template: TemplateStatus | None = Field(
        default=None, description="the template of spec.template: its defaults, since the first attempt"
    )
    progress: Progress = Field(default_factory=Progress)
    usage: Usage = Field(default_factory=Usage)
    artifacts: list[str] = Field(default_factory=list, description="URIs of its tasks' artifacts")
    output: str = Field(default="", description="URI of checkpoints, artifacts, logs and the report")
    expected_start: Moment | None = Field(default=None, description="when it is predicted to start, while it waits (RFC 3339)")
    started_at: Moment | None = Field(default=None, description="when the first attempt was placed (RFC 3339)")
    finished_at: Moment | None = Field(default=None, description="when the job ended (RFC 3339)")
