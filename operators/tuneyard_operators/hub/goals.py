"""JobSpecs as the API server holds them, as goals: parsed, checked for what cannot work on any cluster, with their output."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tuneyard.api import STORED, JobSpec, JobStatus, check_rules
from tuneyard.api.base import LOCATED
from tuneyard.api.local_files import ADVICE, is_relative, local_files
from tuneyard.api.wire import Reading, read
from tuneyard_operators.hub.clock import at
from tuneyard_operators.hub.lifecycle import Goal
from tuneyard_operators.rendering import Defaults

log = logging.getLogger(__name__)
FINALIZER = "tuneyard.dev/members"
LARGEST_SPEC = 100_000
"""Bytes: a pod gets the JobSpec in one environment variable, and Linux limits one to 128 KiB."""
_NAMED = 5


def goal_of(item: Mapping[str, Any], defaults: Defaults, cluster_images: bool = True) -> Goal:
    """The goal that a JobSpec object states. `problem` says what is wrong where it cannot work; the job is then a stub."""
    metadata = item["metadata"]
    try:
        job = JobSpec.model_validate({key: item[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in item}, context=STORED)
        problem = "; ".join(_problems(job, defaults, cluster_images))
    except ValidationError as error:
        wrong = error.errors(include_input=False)[:_NAMED]
        job, problem = _stub(item), "; ".join(map(_complaint, wrong))
    return Goal(
        job=job,
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        created=at(metadata["creationTimestamp"]),
        deleted="deletionTimestamp" in metadata,
        held=FINALIZER in metadata.get("finalizers", []),
        problem=problem,
    )


def status_of(item: Mapping[str, Any]) -> Reading[JobStatus]:
    """The stored status; a fresh one where there is none."""
    found = read(JobStatus, item.get("status"))
    if found.problems:
        log.warning("the status of %s cannot be read in full: %s", item["metadata"]["name"], found.problems)
    return found


def output_of(goal: Goal, defaults: Defaults) -> str:
    """Where the job writes: what it says, else a folder below the hub's own, whose uid keeps it apart from an earlier job of its name."""
    if goal.job.spec.storage.output is not None:
        return goal.job.spec.storage.output
    metadata = goal.job.metadata
    return f"{defaults.output.rstrip('/')}/{metadata.namespace}/{metadata.name}-{goal.uid[:8]}"


def _problems(job: JobSpec, defaults: Defaults, cluster_images: bool) -> Iterator[str]:
    size = len(job.model_dump_json(by_alias=True, exclude_unset=True))
    if size > LARGEST_SPEC:
        yield f"spec: {size:,} bytes as JSON, and a pod takes at most {LARGEST_SPEC:,}: move scripts and texts into files in storage"
    for violation in check_rules(job):
        yield f"{'.'.join(map(str, violation.path))}: {violation.reason}"
    if job.spec.storage.output is not None and is_relative(job.spec.storage.output):
        yield f"spec.storage.output: {job.spec.storage.output} is a folder of one machine: say where in storage, such as s3://bucket/folder"
    if job.spec.storage.output is None and not defaults.output:
        yield "spec.storage.output: say where checkpoints and artifacts go, such as s3://bucket/folder; this hub has no default"
    if job.spec.image is None and not defaults.image and not cluster_images:
        yield "spec.image: name an image; this hub has no default"
    for file in local_files(job.spec):
        yield f"{'.'.join(map(str, file.path))}: {file.text} lies beside the file, and no cluster has it: {ADVICE}"
    for index, task in enumerate(job.spec.tasks):
        where = f"spec.tasks.{index}"
        if task.tune is not None and "resources.workers" in task.tune.space:
            yield f"{where}.tune.space: a search on a cluster runs on one gang; leave resources.workers out"


def _complaint(error: ErrorDetails) -> str:
    path = (*error["loc"], *(error["ctx"]["path"] if error["type"] == LOCATED else ()))
    return f"{'.'.join(map(str, path))[:200]}: {error['msg'].removeprefix('Value error, ')[:500]}"


def _stub(item: Mapping[str, Any]) -> JobSpec:
    """Stands in for a spec that cannot be read: the API server let it pass, or stored it under an older schema. It can be cancelled."""
    metadata, spec = item["metadata"], item.get("spec")
    asked = {name: True for name in ("cancelled", "suspend") if isinstance(spec, Mapping) and spec.get(name) is True}
    return JobSpec.model_validate(
        {
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "spec": {**asked, "tasks": [{"name": "unreadable", "process": {"command": ["false"]}}]},
        }
    )
