"""A JobSpec as the hub holds it: what was asked for, and what the operator has reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from tuneyard.api import STORED, Attempt, BadInput, JobSpec, JobStatus, Phase
from tuneyard.api.tasks import TASK_KINDS
from tuneyard.api.templates import filled_job, no_template
from tuneyard.api.wire import read


@dataclass(frozen=True)
class TaskOutline:
    """A task as far as it has to be known to be shown."""

    name: str
    kind: str
    upstream: tuple[str, ...]


@dataclass(frozen=True)
class HubJob:
    """One JobSpec of the hub. `spec` is as the API server holds it, `filled` the same with the defaults of the template by which it runs;
    `status` is empty until the operator saw it."""

    name: str
    namespace: str
    uid: str
    version: str
    """resourceVersion: changes with everything that changes."""
    generation: int
    """Changes with the spec."""
    created_at: datetime
    deleting: bool
    spec: Mapping[str, Any]
    status: JobStatus
    filled: Mapping[str, Any]
    tasks: tuple[TaskOutline, ...]
    """In the order in which they run."""

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def phase(self) -> Phase:
        return self.status.phase

    @property
    def cancelled(self) -> bool:
        """True once someone has asked for its end, which may still take a moment."""
        return bool(self.spec.get("cancelled"))

    @property
    def ended(self) -> bool:
        """True for good: a final phase that stands for the spec as it is now, and not for one that has been corrected since."""
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
        """What the operator advises about the last failure; empty where nothing failed."""
        failed = [attempt for attempt in self.status.attempts if attempt.next_step]
        return failed[-1].next_step if failed and self.status.phase is Phase.FAILED else ""


def hub_job(found: Mapping[str, Any]) -> HubJob:
    """A JobSpec from the API server's JSON.

    What a newer hub reports beside what is known here is left out; a status that cannot be read at all keeps its phase.
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
        status=_status(found.get("status") or {}),
        filled=filled,
        tasks=_outline(found["metadata"], filled),
    )


def _status(found: Mapping[str, Any]) -> JobStatus:
    reading = read(JobStatus, found)
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
        # Admission's schema lets through what only the rules refuse; the operator's message says what is wrong with it.
        return tuple(
            TaskOutline(task["name"], next((kind for kind in TASK_KINDS if kind in task), ""), tuple(task.get("dependsOn") or ()))
            for task in spec.get("tasks") or []
        )
    return tuple(TaskOutline(task.name, task.kind, tuple(job.needs(task))) for task in job.task_order())
