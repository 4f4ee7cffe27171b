"""JobSpecs as the API server holds them, as goals: parsed, checked for what cannot work on any cluster, with their output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from tuneyard.api import JobSpec, JobStatus, check_rules
from tuneyard_operators.hub.clock import at
from tuneyard_operators.hub.lifecycle import Goal
from tuneyard_operators.rendering import Defaults

FINALIZER = "tuneyard.dev/members"
_NOT_YET = {"rank": "rankers are not built yet"}


def goal_of(item: Mapping[str, Any], defaults: Defaults, cluster_images: bool = True) -> Goal:
    """The goal that a JobSpec object states. `problem` says what is wrong where it cannot work; the job is then a stub."""
    metadata = item["metadata"]
    try:
        job = JobSpec.model_validate({key: item[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in item})
        problem = "; ".join(_problems(job, defaults, cluster_images))
    except ValidationError as error:
        job, problem = _stub(metadata), "; ".join(f"{'.'.join(map(str, e['loc']))}: {_words(e['msg'])}" for e in error.errors()[:5])
    return Goal(
        job=job,
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        created=at(metadata["creationTimestamp"]),
        deleted="deletionTimestamp" in metadata,
        held=FINALIZER in metadata.get("finalizers", []),
        problem=problem,
    )


def status_of(item: Mapping[str, Any]) -> JobStatus:
    """The stored status; a fresh one where there is none, or where somebody has written nonsense there."""
    try:
        return JobStatus.model_validate(item.get("status") or {})
    except ValidationError:
        return JobStatus()


def output_of(goal: Goal, defaults: Defaults) -> str:
    """Where the job writes: what it says, else a folder below the hub's own, whose uid keeps it apart from an earlier job of its name."""
    if goal.job.spec.storage.output is not None:
        return goal.job.spec.storage.output
    metadata = goal.job.metadata
    return f"{defaults.output.rstrip('/')}/{metadata.namespace}/{metadata.name}-{goal.uid[:8]}"


def _problems(job: JobSpec, defaults: Defaults, cluster_images: bool) -> Iterator[str]:
    for violation in check_rules(job):
        yield f"{'.'.join(map(str, violation.path))}: {violation.reason}"
    if job.spec.storage.output is None and not defaults.output:
        yield "spec.storage.output: say where checkpoints and artifacts go, such as s3://bucket/folder; this hub has no default"
    if job.spec.image is None and not defaults.image and not cluster_images:
        yield "spec.image: name an image; this hub has no default"
    for index, task in enumerate(job.spec.tasks):
        where = f"spec.tasks.{index}"
        if task.kind in _NOT_YET:
            yield f"{where}.{task.kind}: {_NOT_YET[task.kind]}; take the task out"
        if task.tune is not None and job.spec.gang_of(task).train is None:
            yield f"{where}.tune.task: {task.tune.task} is no train task; name one"
        if task.tune is not None and "resources.workers" in task.tune.space:
            yield f"{where}.tune.space: a search on a cluster runs on one gang; leave resources.workers out"
        for source in task.sources():
            if source.source is not None and "://" not in source.source and not source.source.startswith("/"):
                yield f"{where}: {source.source} is a path beside the file, which a cluster does not have; use a URI such as s3://bucket/file"
        if task.train is not None and isinstance(task.resources.workers, int) and task.train.batch.global_ % task.resources.workers:
            yield f"{where}.train.batch.global: {task.train.batch.global_} does not divide over {task.resources.workers} workers"


def _words(message: str) -> str:
    return message.removeprefix("Value error, ")


def _stub(metadata: Mapping[str, Any]) -> JobSpec:
    """Stands in for a spec that cannot be read: the API server let it pass, or stored it under an older schema."""
    return JobSpec.model_validate(
        {
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "spec": {"tasks": [{"name": "unreadable", "process": {"command": ["false"]}}]},
        }
    )
