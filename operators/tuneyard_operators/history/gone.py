"""Jobs whose JobSpecs are gone, for the API of logs: the JobSpec as far as its record has it. Secrets in its values are not on record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.tracking.history import History
from tuneyard.tracking.past import JobFilter, PastJob
from tuneyard_operators.history.rows import job_key

_PLACE = ("cluster", "sku", "workers", "gpus")


def gone_job(history: History, name: str, uid: str, wanted: JobFilter) -> dict[str, Any] | None:
    """The job `uid`, or without one the newest of the name; None if there is none."""
    found = history.find(job_key(uid) if uid else name, wanted)
    if found is None or found.name != name or (uid and found.uid != uid):
        return None
    return _jobspec(found, history.spec(found), history.attempts(found.id))


def _jobspec(job: PastJob, spec: Mapping[str, Any], attempts: list[dict[str, Any]]) -> dict[str, Any]:
    metadata = {"name": job.name, "namespace": job.namespace, "uid": job.uid, "creationTimestamp": job.started_at.isoformat()}
    told = [
        {"number": each["number"], "task": each["task"], "token": 0, "placement": {key: each[key] for key in _PLACE}} for each in attempts
    ]
    return {"metadata": metadata, "spec": spec.get("spec") or {}, "status": {"output": job.output, "attempts": told}}
