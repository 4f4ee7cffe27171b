"""A JobSpec of the hub: the spec that was submitted, and the status that the operator reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from tuneyard.api import STORED, Attempt, BadInput, JobSpec, JobStatus, Phase
from tuneyard.api.tasks import TASK_KINDS
from tuneyard.api.templates import filled_job, no_template
from tuneyard.api.wire import read
from tuneyard.kubernetes import unreadable


@dataclass(frozen=True)
class TaskOutline:
    """The parts of a task that views show."""

    name: str
    kind: str
    upstream: tuple[str, ...]


@dataclass(frozen=True)
class HubJob:
    """One JobSpec of the hub. `spec`: as stored; `filled`: `spec` with the defaults of its template; `status`: empty before the operator's
    first report."""

    name: str
    namespace: str
    uid: str
    version: str
    """resourceVersion: changes with each change of the object."""
    generation: int
    """Changes with the spec."""
    created_at: datetime
    deleting: bool
    spec: Mapping[str, Any]
    status: JobStatus
    filled: Mapping[str, Any]
    tasks: tuple[TaskOutline, ...]
    """In the order in which they run."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """As stored."""

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def phase(self) -> Phase:
        return self.status.phase

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled. The job may still run for a moment."""
        return bool(self.spec.get("cancelled"))

    @property
    def asleep(self) -> bool:
        """Whether a server of it has ended for lack of requests, and nothing has woken it since."""
        return any(attempt.sleeps for attempt in self.status.attempts)

    @property
    def state(self) -> str:
        """The phase for people: or the deletion, cancellation or hold that is under way, or the sleep of its server."""
        if self.deleting:
            return "Deleting"
        if self.phase.final:
            return str(self.phase)
        if self.cancelled:
            return "Cancelling"
        if self.spec.get("suspend"):
            return "Suspended"
        return "Asleep" if self.asleep and self.phase is Phase.QUEUED else str(self.phase)

    @property
    def ended(self) -> bool:
        """Whether its phase is final for the spec as it is now. A spec that was corrected since then starts the job again."""
        seen = self.status.observed_generation
        return self.status.phase.final and (seen is None or seen >= self.generation)

    @property
    def output(self) -> str:
        """URI of checkpoints, artifacts and logs; empty until the hub has chosen one."""
        return self.status.output or str((self.filled.get("storage") or {}).get("output") or "")

    @property
    def last_attempt(self) -> Attempt | None:
        return max(self.status.attempts, key=lambda attempt: attempt.number, default=None)

    def next_step(self) -> str:
        """The operator's advice about the last failure; empty without a failure."""
        failed = [attempt for attempt in self.status.attempts if attempt.next_step]
        return failed[-1].next_step if failed and self.status.phase is Phase.FAILED else ""


def hub_job(found: Mapping[str, Any]) -> HubJob:
    """A JobSpec from the API server's JSON.

    Fields that a newer hub adds are left out. A status that cannot be read keeps its phase.
    """
    metadata = found["metadata"]
    spec = found.get("spec") or {}
    filled = _filled(found) or spec
    return HubJob(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
        version=metadata.get("resourceVersion", ""),
        generation=metadata.get("generation", 0),
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        deleting="deletionTimestamp" in metadata,
        spec=spec,
        status=_status(found),
        filled=filled,
        tasks=_outline(found["metadata"], filled),
        metadata=metadata,
    )


def _status(found: Mapping[str, Any]) -> JobStatus:
    reading = read(JobStatus, found.get("status") or {})
    for part, why in unreadable(found).items():
        reading.value.message = reading.value.message or f"{part} cannot be read: {why}"
    if reading.lost:
        reading.value.message = f"upgrade tuneyard: the hub's status has a form that this version cannot read ({reading.lost})"
    return reading.value


def _filled(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    try:
        return filled_job(found, no_template).get("spec")
    except BadInput:
        return None  # it waits for its template


def _outline(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[TaskOutline, ...]:
    try:
        job = JobSpec.model_validate({"metadata": metadata, "spec": spec}, extra="ignore", context=STORED).spec
    except ValidationError:
        # Admission's schema accepts specs that only the rules refuse. The operator's message tells the problem.
        return tuple(
            TaskOutline(task["name"], next((kind for kind in TASK_KINDS if kind in task), ""), tuple(task.get("dependsOn") or ()))
            for task in spec.get("tasks") or []
        )
    return tuple(TaskOutline(task.name, task.kind, tuple(job.needs(task))) for task in job.task_order())
