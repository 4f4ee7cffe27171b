"""AttemptReport: the state of an attempt on its member, and the hub's only request to it there, to stop.

The attempt maintains the report, a small object beside its RayJob with the same name; the hub never creates one. Its writer may touch only
objects of this kind, so a job can at worst misreport itself.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tuneyard.api.base import Fields, Resource, StatusFields
from tuneyard.api.errors import FailureKind
from tuneyard.api.moments import MomentOrEmpty
from tuneyard.api.status import AttemptSummary, Phase, Progress, StageTime

StopReason = Literal["Cancelled", "Preempted", "Deadline"]
STOP_GRACE_S = 120.0
"""Seconds for an attempt to end its step and commit a checkpoint, unless the hub's chart sets another value; clouds give a reclaimed
machine 30 to 120 s. The hub's settings pass the value to pods, reports and ranks.
"""


class StopRequest(StatusFields):
    """The hub's request to commit a checkpoint and end. After `grace_s` the RayJob is deleted."""

    reason: StopReason = Field(description="why it is asked to stop")
    grace_s: float = Field(default=STOP_GRACE_S, ge=0, description="seconds for the last checkpoint")


class AttemptGoal(Fields):
    """The hub's requests to the attempt."""

    stop: StopRequest | None = Field(default=None, description="commit a checkpoint and end; absent: continue")
    standing: str = Field(default="", description="how far a server is that a request has woken, for whoever sends requests")


class RankPlace(StatusFields):
    """Place of a rank, or of an engine of a score task."""

    rank: int = Field(ge=0, description="number of the rank or engine, from 0")
    pod: str = Field(description="name of its pod")
    node: str = Field(default="", description="name of the node")


class Failure(StatusFields):
    """Cause of an attempt's end without success."""

    kind: FailureKind = Field(description="kind of failure, which decides the reaction")
    message: str = Field(description="cause, for people")
    next_step: str = Field(default="", description="next step for a person")
    node: str = Field(default="", description="the node to blame, if any: the next attempt avoids it")
    rank: int | None = Field(default=None, description="rank that failed first; absent: not known")
    log_tail: str = Field(default="", description="last lines of the rank that failed first")


class AttemptState(StatusFields):
    """State of the attempt. The attempt replaces it as a whole every few seconds."""

    phase: Phase = Field(default=Phase.STARTING, description="phase of the attempt")
    message: str = Field(default="", description="current activity, for people")
    observed_at: MomentOrEmpty = Field(default="", description="RFC 3339; by the clock of the head pod")
    stage: str = Field(default="", description="work outside the steps: loading model, tokenising, preflight")
    stages: list[StageTime] = Field(default_factory=list, description="stages of work with their times, in the order of their begin")
    progress: Progress = Field(default_factory=Progress)
    ranks: list[RankPlace] = Field(default_factory=list, description="places of ranks or engines")
    idle: bool = Field(default=False, description="its server has ended because nobody had asked it for the time of `serve.idle`")
    asked_at: MomentOrEmpty = Field(default="", description="when a request for its server last came since then (RFC 3339)")
    world_size: int = Field(default=0, ge=0, description="number of ranks; 0: not started yet")
    checkpoint_step: int = Field(default=0, ge=0, description="step of the newest committed checkpoint")
    resumed_from: int = Field(default=0, ge=0, description="step at which this attempt started")
    failure: Failure | None = Field(default=None, description="the failure; absent: none")
    metrics: dict[str, Any] = Field(default_factory=dict, description="the task's figures in report.json that are single numbers")
    artifacts: list[str] = Field(default_factory=list, description="URIs of its artifacts")
    charged: float | None = Field(
        default=None,
        ge=0,
        description="what endpoints charge for this attempt, by the prices in the JobSpec; absent: not known",
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="its settings by the columns that predictors read, for run history")
    plan: dict[str, Any] = Field(default_factory=dict, description="its plan: layout, memory by part, predicted speed, for run history")
    summary: AttemptSummary | None = Field(default=None, description="its steps together, for run history; absent before the first one")


class AttemptReport(Resource):
    """State of one attempt, on the member that runs it."""

    kind: Literal["AttemptReport"] = Field(default="AttemptReport", description="always AttemptReport")
    spec: AttemptGoal = Field(default_factory=AttemptGoal)
    status: AttemptState | None = Field(default=None, description="the attempt's report of its state")
