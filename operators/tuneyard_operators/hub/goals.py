"""Turns stored JobSpecs into goals: parses them, fills in their template, refuses specs that no cluster can run, names their output."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tuneyard.admission import Hub, admit
from tuneyard.api import STORED, BadInput, FindTemplate, Job, JobSpec, JobStatus, ModelTemplate
from tuneyard.api.base import LOCATED
from tuneyard.api.local_files import ADVICE, is_relative, local_files
from tuneyard.api.status import TemplateStatus
from tuneyard.api.templates import filled_manifest, kept_template, no_template, template_of
from tuneyard.api.wire import Reading, read
from tuneyard.kubernetes import NO_ROOM, unreadable
from tuneyard_operators.hub.clock import at
from tuneyard_operators.kube import Key
from tuneyard_operators.rendering import Defaults

log = logging.getLogger(__name__)
FINALIZER = "tuneyard.dev/members"
LARGEST_SPEC = 100_000
"""Bytes: a pod gets the JobSpec in one environment variable, and Linux limits one to 128 KiB."""
_NAMED = 5
NO_NAME = "unreadable"
"""The task of a stub whose spec does not tell the names of its tasks."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A JobSpec, with the parts of its metadata that decisions depend on."""

    job: JobSpec
    uid: str
    generation: int
    created: datetime
    deleted: bool = False
    has_finalizer: bool = False
    problem: str = ""
    """Why the spec cannot work; empty if it can. The hub starts no attempt of a job with a problem."""
    may_pass: bool = False
    """Whether the problem may end by itself, such as a missing template: the job then waits. Otherwise it fails."""
    unreadable: str = ""
    """Why the hub reads spec or metadata in part alone; empty if it reads all of them."""
    template: TemplateStatus | None = None
    """The template that gave `job` its defaults, in the form of a status."""
    missing: str = ""
    """A message about a missing object that a person must create, such as a Secret; empty if none is missing."""

    @property
    def key(self) -> Key:
        return self.job.metadata.namespace, self.job.metadata.name


def goal_of(item: Mapping[str, Any], defaults: Defaults, cluster_images: bool = True, find: FindTemplate = no_template) -> Goal:
    """The goal of a JobSpec object, with the defaults of its template. For an unreadable object, `problem` says why and `job` is a stub."""
    metadata = item["metadata"]
    beyond = {part: f"{part}: {why}" for part, why in unreadable(item).items() if part in ("metadata", "spec", NO_ROOM)}
    template, name, passing = None, "" if beyond else template_of(item.get("spec")), NO_ROOM in beyond
    try:
        made: Mapping[str, Any] = item
        if name:
            template = found = kept_template(item) or find(name)
            made = filled_manifest(item, lambda _: found)
        if beyond:
            job, problem = _stub(item), "; ".join(beyond.values())
        else:
            job = JobSpec.model_validate(
                {key: made[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in made}, context=STORED
            )
            problem = "; ".join(_problems(job, defaults, cluster_images))
    except ValidationError as error:
        wrong = error.errors(include_input=False)[:_NAMED]
        job, problem = _stub(item), "; ".join(map(_complaint, wrong))
    except BadInput as error:
        job, problem, passing = _stub(item), "; ".join(error.cause.splitlines()), template is None
    return Goal(
        job=job,
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        created=at(metadata["creationTimestamp"]),
        deleted="deletionTimestamp" in metadata,
        has_finalizer=FINALIZER in metadata.get("finalizers", []),
        problem=problem,
        may_pass=passing,
        unreadable="; ".join(beyond.values()),
        template=_as_kept(item, name, template),
    )


def _as_kept(item: Mapping[str, Any], name: str, template: ModelTemplate | None) -> TemplateStatus | None:
    """A template in the form that a job's status keeps. A kept template stays as it is, with fields of a newer hub."""
    if template is None:
        return None
    kept = (item.get("status") or {}).get("template")
    if isinstance(kept, Mapping) and kept.get("name") == name:
        return read(TemplateStatus, kept).value
    return TemplateStatus(name=name, spec=template.spec.to_yaml_dict())


def status_of(item: Mapping[str, Any]) -> Reading[JobStatus]:
    """The stored status; a fresh status if there is none. Of a status over the budget of `tuneyard.kubernetes.reading`, all is lost."""
    if why := unreadable(item).get("status"):
        return Reading(JobStatus(), f"status: {why}", f"status: {why}")
    found = read(JobStatus, item.get("status"))
    if found.problems:
        log.warning("the status of %s cannot be read in full: %s", item["metadata"]["name"], found.problems)
    return found


def output_of(goal: Goal, defaults: Defaults) -> str:
    """The URI that the job writes to: its own, else a folder below the hub's. The uid in its name keeps jobs of one name apart."""
    if goal.job.spec.storage.output is not None:
        return goal.job.spec.storage.output
    metadata = goal.job.metadata
    return f"{defaults.output.rstrip('/')}/{metadata.namespace}/{metadata.name}-{goal.uid[:8]}"


def _problems(job: JobSpec, defaults: Defaults, cluster_images: bool) -> Iterator[str]:
    size = len(job.model_dump_json(by_alias=True, exclude_unset=True))
    if size > LARGEST_SPEC:
        yield f"spec: {size:,} bytes as JSON, but a pod takes at most {LARGEST_SPEC:,}: move scripts and texts into files in storage"
    yield from map(str, admit(job, Hub()))
    if job.spec.storage.output is not None and is_relative(job.spec.storage.output):
        yield f"spec.storage.output: {job.spec.storage.output} is a folder of one machine: name a place in storage, such as s3://bucket/folder"
    if job.spec.storage.output is None and not defaults.output:
        yield "spec.storage.output: name a place for checkpoints and artifacts, such as s3://bucket/folder; this hub has no default"
    if job.spec.image is None and not defaults.image and not cluster_images:
        yield "spec.image: name an image; this hub has no default"
    for file in local_files(job.spec):
        yield f"{'.'.join(map(str, file.path))}: {file.text} is a file of one machine, and no cluster has it: {ADVICE}"


def _complaint(error: ErrorDetails) -> str:
    path = (*error["loc"], *(error["ctx"]["path"] if error["type"] == LOCATED else ()))
    return f"{'.'.join(map(str, path))[:200]}: {error['msg'].removeprefix('Value error, ')[:500]}"


def _stub(item: Mapping[str, Any]) -> JobSpec:
    """A stand-in for an unreadable JobSpec: one that the API server did not refuse, or stored under an older schema."""
    metadata = item["metadata"]
    return JobSpec.model_validate(
        {"metadata": {"name": metadata["name"], "namespace": metadata["namespace"]}, "spec": stub_spec(item.get("spec"))}
    )


def stub_spec(spec: Any) -> dict[str, Any]:
    """A stand-in for an unreadable spec. It keeps the names of the tasks, and the author's wish to cancel, suspend or end the job
    (`cancelled`, `suspend`, `deadline`, `ttlAfterFinished`)."""
    known = spec if isinstance(spec, Mapping) else {}
    asked: dict[str, Any] = {name: True for name in ("cancelled", "suspend") if known.get(name) is True}
    listed = known.get("tasks")
    names = [each.get("name") if isinstance(each, Mapping) else None for each in listed] if isinstance(listed, list) else []
    tasks = [{"name": name, "process": {"command": ["false"]}} for name in names]
    if not tasks or not _is_readable({"tasks": tasks}):
        tasks = [{"name": NO_NAME, "process": {"command": ["false"]}}]
    for name in ("deadline", "ttlAfterFinished"):
        if known.get(name) is not None and _is_readable({name: known[name], "tasks": tasks}):
            asked[name] = known[name]
    return {**asked, "tasks": tasks}


def _is_readable(spec: dict[str, Any]) -> bool:
    try:
        Job.model_validate(spec)
    except ValidationError:
        return False
    return True
