"""AttemptReport: what an attempt says about itself on its member, and the one thing the hub asks of it there, to stop.

The hub creates none and the attempt keeps one: a small object beside its RayJob, with the same name. Its writer may touch objects of
this kind and nothing else, so a job can at worst misreport itself.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tuneyard.api.base import Fields, Resource, StatusFields
from tuneyard.api.errors import FailureKind
from tuneyard.api.moments import MomentOrEmpty
from tuneyard.api.status import Phase, Progress

StopReason = Literal["Cancelled", "Preempted", "Deadline"]
STOP_GRACE_S = 120.0
"""What an attempt has to end its step and commit a checkpoint, where the hub's chart says nothing else; clouds give a reclaimed machine
30 to 120 s. The hub's value travels from its settings to pods, reports and ranks."""


class StopRequest(StatusFields):
    """The hub's wish: commit a checkpoint and end. After `grace_s` the RayJob is deleted."""

    reason: StopReason = Field(description="why it is asked to stop")
    grace_s: float = Field(default=STOP_GRACE_S, ge=0, description="seconds for the last checkpoint")


class AttemptGoal(Fields):
    """What the hub asks of the attempt."""

    stop: StopRequest | None = Field(default=None, description="commit a checkpoint and end; absent: go on")


class RankPlace(StatusFields):
    """Where a rank, or an engine of a score task, runs."""

    rank: int = Field(ge=0, description="number of the rank or engine, from 0")
    pod: str = Field(description="name of its pod")
    node: str = Field(default="", description="name of the node")


class Failure(StatusFields):
    """Why an attempt ended without success."""

    kind: FailureKind = Field(description="kind of failure, which decides what follows")
    message: str = Field(description="what happened, for people")
    next_step: str = Field(default="", description="what a person can do about it")
    node: str = Field(default="", description="the node that is to blame, where one is: the next attempt goes elsewhere")
    rank: int | None = Field(default=None, description="rank that failed first; absent: not known")
    log_tail: str = Field(default="", description="last lines of the rank that failed first")


class AttemptState(StatusFields):
    """Replaced whole every few seconds while the attempt lives."""

    phase: Phase = Field(default=Phase.STARTING, description="where the attempt stands")
    message: str = Field(default="", description="what is going on, for people")
    observed_at: MomentOrEmpty = Field(default="", description="RFC 3339; by the clock of the head pod")
    stage: str = Field(default="", description="what goes on outside the steps: loading model, tokenising, preflight")
    progress: Progress = Field(default_factory=Progress)
    ranks: list[RankPlace] = Field(default_factory=list, description="where ranks or engines run")
    world_size: int = Field(default=0, ge=0, description="number of ranks; 0: not started yet")
    checkpoint_step: int = Field(default=0, ge=0, description="step of the newest committed checkpoint")
    resumed_from: int = Field(default=0, ge=0, description="step that this attempt started at")
    failure: Failure | None = Field(default=None, description="why it failed; absent: it has not")
    metrics: dict[str, Any] = Field(default_factory=dict, description="the task's figures in report.json that are single numbers")
    artifacts: list[str] = Field(default_factory=list, description="URIs of what it made")


class AttemptReport(Resource):
    """State of one attempt, on the member that runs it."""

    kind: Literal["AttemptReport"] = Field(default="AttemptReport", description="always AttemptReport")
    spec: AttemptGoal = Field(default_factory=AttemptGoal)
    status: AttemptState | None = Field(default=None, description="what the attempt says")
