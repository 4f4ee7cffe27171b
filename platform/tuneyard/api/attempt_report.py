"""AttemptReport: what an attempt says about itself on its member, and the one thing the hub asks of it there, to stop.

The hub creates none and the attempt keeps one: a small object beside its RayJob, with the same name. Its writer may touch objects of
this kind and nothing else, so a job can at worst misreport itself.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from tuneyard.api.base import Fields, Resource
from tuneyard.api.errors import FailureKind
from tuneyard.api.status import Phase, Progress

StopReason = Literal["Cancelled", "Preempted", "Deadline"]


class StopRequest(Fields):
    """The hub's wish: commit a checkpoint and end. After `grace_s` the RayJob is deleted."""

    reason: StopReason
    grace_s: float = Field(default=120.0, ge=0)


class AttemptGoal(Fields):
    stop: StopRequest | None = None


class RankPlace(Fields):
    """Where a rank, or an engine of a score task, runs."""

    rank: int = Field(ge=0)
    pod: str
    node: str = ""


class Failure(Fields):
    """Why an attempt ended without success."""

    kind: FailureKind
    message: str
    next_step: str = ""
    node: str = Field(default="", description="the node that is to blame, where one is: the next attempt goes elsewhere")
    rank: int | None = None
    log_tail: str = Field(default="", description="last lines of the rank that failed first")


class AttemptState(Fields):
    """Replaced whole every few seconds while the attempt lives."""

    model_config = ConfigDict(extra="ignore")

    phase: Phase = Phase.STARTING
    message: str = ""
    observed_at: str = Field(default="", description="RFC 3339; by the clock of the head pod")
    stage: str = Field(default="", description="what goes on outside the steps: loading model, tokenising, preflight")
    progress: Progress = Field(default_factory=Progress)
    ranks: list[RankPlace] = Field(default_factory=list)
    world_size: int = Field(default=0, ge=0)
    checkpoint_step: int = Field(default=0, ge=0, description="step of the newest committed checkpoint")
    resumed_from: int = Field(default=0, ge=0, description="step that this attempt started at")
    failure: Failure | None = None
    metrics: dict[str, Any] = Field(default_factory=dict, description="the task's figures in report.json that are single numbers")
    artifacts: list[str] = Field(default_factory=list)


class AttemptReport(Resource):
    """State of one attempt, on the member that runs it."""

    kind: Literal["AttemptReport"] = "AttemptReport"
    spec: AttemptGoal = Field(default_factory=AttemptGoal)
    status: AttemptState | None = None
