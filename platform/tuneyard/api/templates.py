"""A job with the defaults of its ModelTemplate filled in: the same function for the hub, local runs and `validate`. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tuneyard.api.base import is_dns_label
from tuneyard.api.errors import BadInput
from tuneyard.api.jobspec import STORED, Job, JobSpec
from tuneyard.api.loading_reasons import explain
from tuneyard.api.loading_yaml import Path, show_path
from tuneyard.api.local_files import is_relative, local_files
from tuneyard.api.rules import check_rules
from tuneyard.api.rules_examples import SMALLEST
from tuneyard.api.schedule import ModelTemplate, ModelTemplateGoal
from tuneyard.api.tasks import Resources
from tuneyard.api.template_fixed import at, kind_of, kinds_of, overruled, overruled_in_task, resources_of
from tuneyard.api.template_merge import TEMPLATED, merged

FindTemplate = Callable[[str], ModelTemplate]
"""Name -> template. Raises BadInput for an unknown name."""
LARGEST_BYTES = 32_000
"""Limit of a template's size: a hub keeps its defaults in the status of each job that uses it."""
JOB_FIELDS = ("image", "setup", "env", "storage", "tracking", "retries", "placement", "deadline", "expectedDuration")
_OF_RANKERS = ("ranking", "rowsPerPart", "maxErrorFraction")
_OF_PROMPTS = ("prompt", "reference", "chat")
ANNOTATION = "tuneyard.dev/template"
_STAND_IN: Mapping[str, Mapping[str, Any]] = {**SMALLEST, "score": merged(SMALLEST["score"], {"data": {"reference": "answer"}}, None)}
"""Required fields of a job, so that a template can be judged without a job."""


@dataclass(frozen=True)
class Filled:
    """`spec` of a JobSpec with its template's defaults. `problems`: conflicts of the job with fields that the template fixes."""

    spec: dict[str, Any]
    problems: tuple[tuple[Path, str], ...] = ()


def no_template(name: str) -> ModelTemplate:
    """`FindTemplate` that knows no template."""
    raise BadInput(
        f"there is no ModelTemplate {name} here",
        f"put it into the same file, or give its file: --templates FILE; from a hub: kubectl get modeltemplate {name} -o yaml > FILE",
    )


def template_from(item: Mapping[str, Any]) -> ModelTemplate:
    """A ModelTemplate from an API server. Raises BadInput if it cannot be read, or fits no job."""
    name = item["metadata"]["name"]
    try:
        template = ModelTemplate.model_validate({key: item[key] for key in ("metadata", "spec") if key in item}, extra="ignore")
    except ValidationError as error:
        wrong = explain(error, ModelTemplate, item)
    else:
        wrong = template_problems(template.spec)
    if wrong:
        path, reason = wrong[0]
        raise BadInput(f"the ModelTemplate {name} cannot be used: {show_path(path)}: {reason}", "its owner has to correct it")
    return template


def kept_template(item: Mapping[str, Any]) -> ModelTemplate | None:
    """The template that a JobSpec from an API server keeps in its status since its first attempt. None if it has not started or now names
    another template. Raises BadInput if the template cannot be read.
    """
    name, status = template_of(item.get("spec")), item.get("status")
    kept = status.get("template") if isinstance(status, Mapping) else None
    if not isinstance(kept, Mapping) or kept.get("name") != name:
        return None
    try:
        return ModelTemplate.model_validate({"metadata": {"name": name}, "spec": kept.get("spec") or {}}, extra="ignore")
    except ValidationError as error:
        raise BadInput(
            f"the ModelTemplate {name} that the job keeps cannot be read: {error.errors()[0]['msg']}", "delete the job"
        ) from None


def filled_job(item: Mapping[str, Any], find: FindTemplate) -> dict[str, Any]:
    """A JobSpec from an API server, filled in from the template in its status, else from `find`. Raises BadInput as `filled_manifest`
    does.
    """
    kept = kept_template(item)
    return filled_manifest(item, find if kept is None else lambda _: kept)


def filled_manifest(manifest: Mapping[str, Any], find: FindTemplate) -> dict[str, Any]:
    """A JobSpec, from a file or an API server, with the defaults of its template. Raises BadInput if the template is unknown, or the job
    conflicts with a field that it fixes.
    """
    spec = manifest.get("spec")
    name = template_of(spec)
    if not name or not isinstance(spec, Mapping):
        return dict(manifest)
    made = filled(spec, name, find(name).spec, folder_of(manifest.get("metadata")))
    if made.problems:
        raise BadInput("\n".join(f"{show_path(path)}: {reason}" for path, reason in made.problems), "leave these fields out")
    return {**manifest, "metadata": named(manifest.get("metadata"), name), "spec": made.spec}


def comparable(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """A job's spec with all defaults of the models, and stand-ins for fields that only its template gives, to compare two specs. None if it
    cannot be read.
    """
    made = filled(spec, "", ModelTemplateGoal(**{kind: dict(fields) for kind, fields in _STAND_IN.items()}))
    try:
        job = Job.model_validate(made.spec, context=STORED)
    except ValidationError:
        return None
    return {**job.model_dump(mode="json", by_alias=True), "template": spec.get("template")}


def template_of(spec: Any) -> str:
    """The name of the template in the `spec` of a JobSpec, as written; empty if there is none."""
    name = spec.get("template") if isinstance(spec, Mapping) else None
    return name if isinstance(name, str) and is_dns_label(name) else ""


def folder_of(metadata: Any) -> str:
    """The folder of a job below the output that a template names: NAMESPACE/NAME-UID on a hub, NAME in a file; as far as these are
    known.
    """
    known = metadata if isinstance(metadata, Mapping) else {}
    namespace, name, uid = (str(known.get(key) or "") for key in ("namespace", "name", "uid"))
    if not all(is_dns_label(part[:63]) for part in (namespace, name, uid) if part):
        return ""  # the name is refused elsewhere
    return "/".join(part for part in (namespace, "-".join(part for part in (name, uid[:8]) if part)) if part)


def filled(spec: Mapping[str, Any], name: str, goal: ModelTemplateGoal, folder: str = "") -> Filled:
    """A `spec` as written, with unset fields taken from the template `name`. `folder`: the job's folder below the template's output. Values
    of a wrong type stay, for the models to refuse.
    """
    try:
        return _filled(spec, name, goal, folder)
    except RecursionError:
        return Filled(dict(spec), ((("spec",), "is nested too deep"),))


def _filled(spec: Mapping[str, Any], name: str, goal: ModelTemplateGoal, folder: str) -> Filled:
    own = {key: value for key, value in spec.items() if key != "template"}
    tasks = own.pop("tasks", None)
    result = merged(goal.job, own, Job)
    problems = list(overruled(goal, name, "job", result, ("spec",)))
    if isinstance(tasks, list):
        kinds = kinds_of(tasks)
        result["tasks"] = [_task(task, goal, kinds) for task in tasks]
        for index, task in enumerate(result["tasks"]):
            problems += overruled_in_task(goal, name, task, kinds, ("spec", "tasks", index))
    elif tasks is not None:
        result["tasks"] = tasks
    root = at(goal.job, ["storage", "output"])
    said = at(own, ["storage", "output"])
    is_root = said is None or (isinstance(said, str) and isinstance(root, str) and said.rstrip("/") == root.rstrip("/"))
    if isinstance(root, str) and folder and is_root and isinstance(result.get("storage"), Mapping):
        result["storage"]["output"] = f"{root.rstrip('/')}/{folder}"
    return Filled(result, tuple(problems))


def named(metadata: Any, name: str) -> Any:
    """The metadata of a filled job, which name its template: reports and copies of the JobSpec keep them."""
    if not isinstance(metadata, Mapping):
        return metadata
    annotations = metadata.get("annotations")
    return {**metadata, "annotations": {**(annotations if isinstance(annotations, Mapping) else {}), ANNOTATION: name}}


def template_problems(goal: ModelTemplateGoal) -> list[tuple[Path, str]]:
    """Problems of a template that are independent of the job. Paths start at the top of the ModelTemplate."""
    try:
        size = len(json.dumps(goal.to_yaml_dict()))
    except (ValueError, RecursionError):
        return [(("spec",), "is nested too deep")]
    if size > LARGEST_BYTES:
        return [(("spec",), f"{size:,} bytes as JSON, and {LARGEST_BYTES:,} is the most")]
    found: list[tuple[Path, str]] = [
        (("spec", "job", key), f"not a field of a template, which may give: {', '.join(JOB_FIELDS)}")
        for key in goal.job
        if key not in JOB_FIELDS
    ]
    for number, path in enumerate(goal.fixed):
        if at(goal.model_dump(by_alias=True), path.split(".")) is None:
            found.append((("spec", "fixed", number), f"{path} is not among the template's defaults: give it there, such as job.image"))
    try:
        Resources.model_validate(goal.resources)
    except ValidationError as error:
        found += [(("spec", "resources", *path), reason) for path, reason in explain(error, Resources, goal.resources)]
    return found or _judged(goal)


def _judged(goal: ModelTemplateGoal) -> list[tuple[Path, str]]:
    """The problems of the template as part of a job with a task of each kind that it has defaults for."""
    kinds = [kind for kind in TEMPLATED if getattr(goal, kind)] or ["train"]
    tasks = [
        {"name": kind, kind: merged(_STAND_IN[kind], getattr(goal, kind), TEMPLATED[kind]), "resources": resources_of(goal, kind)}
        for kind in kinds
    ]
    value = {"metadata": {"name": "any"}, "spec": {**goal.job, "tasks": tasks}}
    try:
        job = JobSpec.model_validate(value)
    except ValidationError as error:
        wrong = explain(error, JobSpec, value)
    else:
        wrong = [(violation.path, violation.reason) for violation in check_rules(job)]
        wrong += [
            (file.path, f"{file.text} is a path beside a file, and a template has no file: name a URI") for file in local_files(job.spec)
        ]
        if job.spec.storage.output is not None and is_relative(job.spec.storage.output):
            wrong.append((("spec", "storage", "output"), "is a folder beside a file, and a template has no file: name a URI"))
    return list({_in_template(path, kinds): reason for path, reason in wrong}.items())


def _in_template(path: Path, kinds: list[str]) -> Path:
    match path:
        case ("spec", "tasks", int(index), *rest) if rest and index < len(kinds):
            return ("spec", *rest)
        case ("spec", *rest) if rest:
            return ("spec", "job", *rest)
    return path


def _task(task: Any, goal: ModelTemplateGoal, kinds: Mapping[str, str]) -> Any:
    kind = kind_of(task)
    if kind not in TEMPLATED:
        return task
    result = {**task, kind: merged(_defaults(goal, task, kind, kinds), task[kind], TEMPLATED[kind])}
    own = task.get("resources")
    if goal.resources and (own is None or isinstance(own, Mapping)):
        result["resources"] = merged(resources_of(goal, kind), own or {}, Resources)
    return result


def _defaults(goal: ModelTemplateGoal, task: Mapping[str, Any], kind: str, kinds: Mapping[str, str]) -> Mapping[str, Any]:
    """A template's defaults for a task. A score task of a ranker gets none of the fields about language models."""
    given: dict[str, Any] = getattr(goal, kind)
    source = at(task, ["score", "model", "from"])
    if kind != "score" or not isinstance(source, str) or kinds.get(source) != "rank":
        return given
    kept = {name: value for name, value in given.items() if name in _OF_RANKERS}
    data = given.get("data")
    return kept | ({"data": {name: value for name, value in data.items() if name not in _OF_PROMPTS}} if isinstance(data, Mapping) else {})


def said_by(name: str, template: ModelTemplateGoal, path: Path, tasks: Any) -> str:
    """The place where a template sets the wrong value at `path` of a filled job, for the end of a complaint. Empty if the job sets it."""
    match path:
        case ("spec", "tasks", int(index), str(part), *rest):
            of_task = tasks[index] if isinstance(tasks, list) and index < len(tasks) else None
            own, default, shown = (
                at(of_task, [part, *map(str, rest)]),
                at(getattr(template, part, None), [*map(str, rest)]),
                (part, *rest),
            )
        case ("spec", *rest):
            own, default, shown = None, at(template.job, [*map(str, rest)]), ("job", *rest)
        case _:
            return ""
    return f" (the ModelTemplate {name} gives it: spec.{show_path(tuple(shown))})" if own is None and default is not None else ""
