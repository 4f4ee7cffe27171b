"""The rows of a job in run history, from its JobSpec and status alone. Pure: the same objects give the same rows on every hub.

A figure of a task belongs to the attempt that succeeded: later statuses never change it. Usage and charges of endpoints are written when an
attempt ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tuneyard.api import Attempt, JobStatus, Phase, TaskStatus
from tuneyard.api.moments import moment_of
from tuneyard.api.secrets import redact, redact_fields
from tuneyard.api.tasks import TASK_KINDS
from tuneyard.cluster.history_api import USER
from tuneyard.federation import held_hours
from tuneyard.tracking.hub_rows import JobRows, Row, key_of
from tuneyard.tracking.progress.summary import SUMMED
from tuneyard.tracking.tables import CHARGED, ON_HUB
from tuneyard.tuning.passed_on import trials_in

_LEARNED = "learned"
"""The figure of a search with its runs as rows of history."""
DELETED = "its JobSpec was deleted"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Object = Mapping[str, Any]
Signature = tuple[object, ...]


def job_key(uid: str) -> str:
    """The id of a job's row."""
    return key_of("hub", uid)


def signature_of(item: Object, status: JobStatus) -> Signature:
    """The part of a job that is recorded at once when it changes; progress is sampled."""
    metadata = item["metadata"]
    attempts = tuple((attempt.number, attempt.phase, attempt.placed_at, attempt.ended_at) for attempt in status.attempts)
    return metadata["uid"], metadata.get("generation", 0), "deletionTimestamp" in metadata, status.phase, attempts


def rows_of(item: Object, status: JobStatus, hub: str = "") -> JobRows:
    """All rows of a job. `hub`: the hub that records it."""
    uid = str(item["metadata"]["uid"])
    kinds = _kinds(item)
    attempts = [attempt for attempt in status.attempts if attempt.placement is not None]
    succeeded = {attempt.task: attempt for attempt in attempts if attempt.phase is Phase.SUCCEEDED}
    newest = {attempt.task: attempt for attempt in attempts}
    tasks = {task.name: task for task in status.tasks}
    team = _team(item)
    progress = [_step(uid, each, tasks[task]) for task, each in newest.items() if _has_progress(each, tasks.get(task))]
    return JobRows(
        job=_job(item, status, hub, team),
        attempts=(
            *(_attempt(uid, item, each, kinds, tasks if succeeded.get(each.task) is each else {}) for each in attempts),
            *(row for task, each in succeeded.items() if task in tasks for row in _trials(uid, each, tasks[task])),
        ),
        usage=tuple(_usage(uid, each, team) for each in attempts if each.ended_at is not None),
        scores=(
            *(row for task, each in succeeded.items() if task in tasks for row in _scores(uid, each, tasks[task])),
            *_charges(uid, attempts),
        ),
        steps=(*_curves(uid, attempts), *progress),
    )


def _job(item: Object, status: JobStatus, hub: str, team: str) -> Row:
    metadata = item["metadata"]
    word, message, ended = _end(item, status)
    version = str(metadata.get("resourceVersion", ""))
    return {
        "id": job_key(str(metadata["uid"])),
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "team": team,
        "status": word,
        "message": redact(message),
        "output": redact(status.output),
        "spec": _spec(item),
        "started_at": _moment(metadata.get("creationTimestamp")) or _EPOCH,
        "ended_at": ended,
        "origin": ON_HUB,
        "hub": hub,
        "uid": metadata["uid"],
        "submitted_by": str((metadata.get("annotations") or {}).get(USER, "")),
        "placed_at": min(filter(None, (_moment(attempt.placed_at) for attempt in status.attempts)), default=None),
        "version": int(version) if version.isdecimal() else 0,
    }


def _end(item: Object, status: JobStatus) -> tuple[str, str, datetime | None]:
    """Status, message and end of a job. While it has not ended, its message changes by the second and is left out."""
    deleted = _moment(item["metadata"].get("deletionTimestamp"))
    if status.phase.final:
        return status.phase.lower(), status.message, _moment(status.finished_at)
    if deleted is not None and all(attempt.ended_at is not None for attempt in status.attempts):
        ends = (_moment(attempt.ended_at) for attempt in status.attempts)
        return Phase.CANCELLED.lower(), DELETED, max([deleted, *filter(None, ends)])
    return status.phase.lower(), "", None


def _attempt(uid: str, item: Object, attempt: Attempt, kinds: Mapping[str, str], tasks: Mapping[str, TaskStatus]) -> Row:
    place = attempt.placement
    assert place is not None
    created = _moment(item["metadata"].get("creationTimestamp")) or _EPOCH
    return {
        "id": _attempt_key(uid, attempt),
        "job_id": job_key(uid),
        "task": attempt.task,
        "kind": kinds.get(attempt.task, ""),
        "number": attempt.number,
        "status": attempt.phase.lower(),
        "failure": attempt.failure or "",
        "message": redact(attempt.message) if attempt.ended_at is not None else "",
        "sku": place.sku,
        "workers": place.workers,
        "result": _result(tasks[attempt.task]) if attempt.task in tasks else None,
        "started_at": _moment(attempt.started_at) or _moment(attempt.placed_at) or created,
        "ended_at": _moment(attempt.ended_at),
        "cluster": place.cluster,
        "gpus": place.gpus,
        "price_per_gpu_hour": place.price_per_gpu_hour,
        "placement": {"pods": place.pods, "nodes": place.nodes},
        "placed_at": _moment(attempt.placed_at),
        "resumed_from": attempt.resumed_from,
        "last_step": attempt.last_step,
        "checkpoint_step": attempt.checkpoint_step,
        # A status holds settings, plan and summary of its last attempts alone: what is on record of the others stays.
        **({"settings": redact_fields(attempt.settings)} if attempt.settings else {}),
        **({"plan": redact_fields(attempt.plan)} if attempt.plan else {}),
        **({"summary": attempt.summary.model_dump(mode="json", include=set(SUMMED))} if attempt.summary is not None else {}),
    }


def _trials(uid: str, attempt: Attempt, task: TaskStatus) -> Iterator[Row]:
    """The runs of a search, which teach as train attempts do. They are a part of its attempt, which holds the GPUs."""
    place = attempt.placement
    assert place is not None
    for number, run in trials_in(task.metrics.get(_LEARNED)):
        moment = _moment(attempt.started_at) or _moment(attempt.placed_at) or _EPOCH
        yield {
            "id": key_of("hub", uid, attempt.task, attempt.number, "trial", number),
            "job_id": job_key(uid),
            "task": f"{attempt.task}/{number}",
            "kind": "train",
            "number": attempt.number,
            "status": run["status"],
            "failure": run["failure"],
            "message": "",
            "sku": place.sku,
            "workers": place.workers,
            "result": run["result"] or None,
            "started_at": moment,
            "ended_at": _moment(attempt.ended_at),
            "cluster": place.cluster,
            "gpus": 0,
            "settings": run["settings"],
        }


def _usage(uid: str, attempt: Attempt, team: str) -> Row:
    place, ended = attempt.placement, _moment(attempt.ended_at)
    assert place is not None
    hours = held_hours(attempt, _EPOCH, ended) if ended is not None and _moment(attempt.placed_at) is not None else 0.0
    gpu_hours = hours * place.gpus
    return {
        "attempt_id": _attempt_key(uid, attempt),
        "team": team,
        "sku": place.sku,
        "workers": place.workers,
        "seconds": hours * 3600,
        "gpu_hours": gpu_hours,
        "cost": gpu_hours * place.price_per_gpu_hour,
    }


def _result(task: TaskStatus) -> Row:
    """The figures of a task that has succeeded, and its artifacts."""
    figures: Row = redact_fields({name: value for name, value in task.metrics.items() if name != _LEARNED})
    return {**figures, "artifacts": [redact(uri) for uri in task.artifacts]}


def _scores(uid: str, attempt: Attempt, task: TaskStatus) -> Iterator[Row]:
    for name, value in task.metrics.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield {"attempt_id": _attempt_key(uid, attempt), "metric": name, "value": float(value)}


def _charges(uid: str, attempts: Sequence[Attempt]) -> Iterator[Row]:
    """What endpoints charge for each attempt that has ended, with success or without."""
    for attempt in attempts:
        if attempt.charged is not None and attempt.ended_at is not None:
            yield {"attempt_id": _attempt_key(uid, attempt), "metric": CHARGED, "value": attempt.charged}


def _curves(uid: str, attempts: Sequence[Attempt]) -> Iterator[Row]:
    """Losses of steps that no sample of progress may have met, as of short attempts."""
    for attempt in attempts:
        for each in attempt.summary.losses if attempt.summary is not None else ():
            yield {"attempt_id": _attempt_key(uid, attempt), "step": each.step, "loss": each.loss}


def _has_progress(attempt: Attempt, task: TaskStatus | None) -> bool:
    """Whether the progress of a task is that of its newest attempt, and not yet of the one before."""
    return task is not None and attempt.last_step > 0 and attempt.last_step == task.progress.step


def _step(uid: str, attempt: Attempt, task: TaskStatus) -> Row:
    now = task.progress
    return {
        "attempt_id": _attempt_key(uid, attempt),
        "step": now.step,
        "loss": now.loss,
        "tokens_per_s": now.tokens_per_s,
        "mfu": now.mfu,
    }


def _attempt_key(uid: str, attempt: Attempt) -> str:
    return key_of("hub", uid, attempt.task, attempt.number)


def _kinds(item: Object) -> dict[str, str]:
    spec = item.get("spec")
    tasks = spec.get("tasks") if isinstance(spec, Mapping) else None
    named = [task for task in tasks if isinstance(task, Mapping)] if isinstance(tasks, list) else []
    return {str(task.get("name")): next((kind for kind in TASK_KINDS if task.get(kind) is not None), "") for task in named}


def _team(item: Object) -> str:
    spec = item.get("spec")
    return str((spec.get("team") if isinstance(spec, Mapping) else None) or item["metadata"].get("namespace", ""))


def _spec(item: Object) -> Row:
    """The JobSpec without its secrets, in the form of a file."""
    metadata = {name: item["metadata"].get(name, "") for name in ("name", "namespace")}
    try:
        spec = redact_fields(item.get("spec") or {})
    except RecursionError:
        spec = {}
    return {"apiVersion": item.get("apiVersion", ""), "kind": item.get("kind", "JobSpec"), "metadata": metadata, "spec": spec}


def _moment(text: Any) -> datetime | None:
    try:
        return moment_of(text) if isinstance(text, str) else None
    except ValueError:
        return None
