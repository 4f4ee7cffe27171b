"""JobSpecs, attempts and what members show of them, made readable for tests of the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tuneyard.api import Attempt, AttemptReport, JobSpec, JobStatus, Phase, PlacementStatus
from tuneyard_operators.hub.goals import Goal
from tuneyard_operators.hub.observed import Observed

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
UID = "0123abcd-0000-4000-8000-000000000000"


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def job(name: str = "bot", *, tasks: Sequence[Mapping[str, Any]] | None = None, **spec: Any) -> JobSpec:
    """A job of one process task, or of these."""
    given = list(tasks) if tasks is not None else [process("one")]
    return JobSpec.model_validate({"metadata": {"name": name, "namespace": "maps"}, "spec": {"tasks": given, **spec}})


def process(name: str, *after_tasks: str) -> dict[str, Any]:
    return {"name": name, "process": {"command": ["true"]}, "dependsOn": list(after_tasks)}


def train(name: str, workers: int = 2, **resources: Any) -> dict[str, Any]:
    body = {"model": {"name": "m"}, "data": {"source": "s3://b/d.jsonl", "format": "chat"}, "batch": {"global": 16}, "steps": 10}
    return {"name": name, "train": body, "resources": {"workers": workers, **resources}}


def goal(spec: JobSpec | None = None, **changes: Any) -> Goal:
    made = Goal(job=spec or job(), uid=UID, generation=1, created=NOON, has_finalizer=True)
    return replace(made, **changes)


def attempt(number: int = 1, task: str = "one", **changes: Any) -> Attempt:
    placement = PlacementStatus(cluster="east", sku="cpu", workers=2, gpus=2, pods=2, nodes={"n1": 2})
    made = Attempt(
        number=number, task=task, token=number, name=f"bot-{task}-{number}", placement=placement, placed_at="2026-11-21T12:00:00Z"
    )
    return made.model_copy(update=changes)


def running(number: int = 1, task: str = "one", **changes: Any) -> Attempt:
    return attempt(number, task, **{"created": True, "phase": Phase.RUNNING, "started_at": "2026-11-21T12:01:00Z", **changes})


def status(*attempts: Attempt, **changes: Any) -> JobStatus:
    return JobStatus(attempts=list(attempts)).model_copy(update=changes)


def report(name: str = "bot-one-1", **state: Any) -> AttemptReport:
    return AttemptReport.model_validate({"metadata": {"name": name}, "status": state})


def rayjob(**ray: Any) -> dict[str, Any]:
    return {"metadata": {"name": "bot-one-1"}, "status": ray}


def pod(name: str = "bot-head", *, head: bool = True, node: str = "n1", made_s: float = 30, **pod_status: Any) -> dict[str, Any]:
    labels = {"ray.io/node-type": "head" if head else "worker"}
    return {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": after(made_s).strftime("%Y-%m-%dT%H:%M:%SZ")},
        "spec": {"nodeName": node, "containers": [{"image": "registry/tuneyard:1"}]},
        "status": {"phase": "Running", **pod_status},
    }


def seen(**changes: Any) -> Observed:
    """An attempt that runs as it should: RayJob, head pod, report."""
    made = Observed(rayjob=rayjob(jobStatus="RUNNING"), pods=[pod(), pod("bot-worker", head=False)], report=report(phase="Running"))
    return replace(made, **changes)
