"""The outcome of one reconciliation of a job: its next status, and the actions that follow once the status is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from tuneyard.api import Attempt, JobStatus
from tuneyard.federation import Ask


class Verb(StrEnum):
    START = "start"
    """Create the Secret, the NetworkPolicy, the Service and the RayJob of an attempt, unless they exist."""
    STOP = "stop"
    """Ask an attempt to save a checkpoint and end."""
    CLEAN = "clean"
    """Remove all objects of an attempt from its member. Where a later attempt runs, the address of the server leads there first."""
    DOOR = "door"
    """Remove the RayJob of an attempt whose server sleeps, and lead the address to a pod that hears requests."""
    TELL = "tell"
    """Write into the report of an attempt whose server was woken how far the next one is."""
    ADD_FINALIZER = "add finalizer"
    REMOVE_FINALIZER = "remove finalizer"
    """Let the API server delete the JobSpec: all its objects on members are removed."""
    DELETE = "delete"
    """Delete a JobSpec whose time to live is over."""


@dataclass(frozen=True)
class Action:
    verb: Verb
    attempt: Attempt | None = None
    successor: Attempt | None = None
    """Of CLEAN: the later attempt on the same member that runs."""
    told: str = ""
    """Of TELL: the text."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`status`: the next status; `actions`: carried out once it is stored; `look_again_s`: seconds until the next reconciliation is due."""

    status: JobStatus
    changed: bool
    """Whether `status` differs from the stored one."""
    actions: tuple[Action, ...] = ()
    look_again_s: float | None = None
    asks: Mapping[str, Ask] = field(default_factory=dict)
    """The ask of each task that waits for a placement."""
    worded_at: datetime | None = None
    """When the status last got the reasons why the job waits; None if it gives none."""

    @property
    def ready(self) -> tuple[str, ...]:
        """Tasks that wait for a placement."""
        return tuple(self.asks)
