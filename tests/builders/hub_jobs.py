"""Jobs as a hub's API server holds them, and what its operator would have written into their status: for tests of what reads them."""

from __future__ import annotations

from typing import Any

import yaml

from tuneyard.api import API_VERSION
from tuneyard.cluster import HubJob
from tuneyard.cluster.hub_job import hub_job

CREATED = "2026-11-21T12:00:00Z"


def make_manifest(name: str = "support-bot", namespace: str | None = None, *, steps: int = 120, **spec: Any) -> dict[str, Any]:
    """A JobSpec with a train task and a score task that needs it, as its file holds it."""
    train = {"model": {"name": "models/base"}, "data": {"source": "s3://data/chats.jsonl"}, "batch": {"global": 32}, "steps": steps}
    score = {"model": {"from": "train"}, "data": {"source": "s3://data/holdout.parquet", "prompt": "question"}}
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    tasks = [{"name": "train", "train": train}, {"name": "judge", "score": score}]
    return {"apiVersion": API_VERSION, "kind": "JobSpec", "metadata": metadata, "spec": {"tasks": tasks, **spec}}


def as_yaml(manifest: dict[str, Any]) -> str:
    return str(yaml.safe_dump(manifest, sort_keys=False))


def make_held(status: dict[str, Any] | None = None, name: str = "support-bot", *, deleting: bool = False, **spec: Any) -> dict[str, Any]:
    """The same as an API server answers it."""
    found = make_manifest(name, "maps", **spec)
    found["metadata"] |= {"uid": f"uid-of-{name}", "resourceVersion": "7", "creationTimestamp": CREATED}
    if deleting:
        found["metadata"]["deletionTimestamp"] = CREATED
    return found | ({"status": status} if status is not None else {})


def make_hub_job(status: dict[str, Any] | None = None, name: str = "support-bot", *, deleting: bool = False, **spec: Any) -> HubJob:
    return hub_job(make_held(status, name, deleting=deleting, **spec))


def make_placement(cluster: str = "gcp-h100", sku: str = "h100-80gb", gpus: int = 16) -> dict[str, Any]:
    return {"cluster": cluster, "sku": sku, "workers": gpus, "gpus": gpus, "pods": 2, "nodes": {"n1": gpus // 2, "n2": gpus - gpus // 2}}


def make_attempt(number: int = 1, task: str = "train", phase: str = "Running", **fields: Any) -> dict[str, Any]:
    began = {"token": number, "placement": make_placement(), "placedAt": CREATED}
    return {"number": number, "task": task, "phase": phase, **began, **fields}


def make_progress(step: int = 40, of: int = 120, **fields: Any) -> dict[str, Any]:
    figures = {"etaS": 4320.0, "loss": 1.8321, "tokensPerS": 52300.0, "mfu": 0.412}
    return {"step": step, "of": of, "summary": f"{step}/{of}", **figures, **fields}


def make_failed_attempt(number: int = 1) -> dict[str, Any]:
    """An attempt that lost a node, and left behind what its rank said last."""
    return make_attempt(
        number,
        phase="Failed",
        placement=make_placement("dca-a100", "a100-80gb"),
        endedAt="2026-11-21T12:01:40Z",
        lastStep=20,
        checkpointStep=20,
        failure="NodeLost",
        failedNode="n7",
        message="rank 3 stopped answering",
        nextStep="nothing: it goes on elsewhere",
        logTail="step 19 loss 2.10\nstep 20 loss 2.04\n",
        cleaned=True,
    )


def make_running() -> dict[str, Any]:
    """The status of a job whose training has lost a node and goes on elsewhere."""
    tasks = [{"name": "train", "phase": "Running", "progress": make_progress()}, {"name": "judge", "phase": "Pending"}]
    return {
        "phase": "Running",
        "message": "train runs on gcp-h100",
        "placement": make_placement(),
        "progress": make_progress(),
        "tasks": tasks,
        "attempts": [make_failed_attempt(1), make_attempt(2, resumedFrom=20, lastStep=40, checkpointStep=40)],
        "conditions": [{"type": "Accepted", "status": "True", "reason": "Valid", "message": "", "lastTransitionTime": CREATED}],
        "usage": {"gpuHours": 3.2, "cost": 12.4},
        "output": "s3://models/support-bot",
    }
