"""A job with the defaults of its ModelTemplate filled in: the same function for the hub, local runs and `validate`. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tuneyard.api.base import Fields
from tuneyard.api.errors import BadInput
from tuneyard.api.jobspec import Job, JobSpec
from tuneyard.api.loading_reasons import explain
from tuneyard.api.loading_yaml import Path, show_path
from tuneyard.api.local_files import local_files
from tuneyard.api.rank import RankTask
from tuneyard.api.rules import check_rules
from tuneyard.api.schedule import ModelTemplate, ModelTemplateGoal
from tuneyard.api.score import ScoreTask
from tuneyard.api.tasks import Resources
from tuneyard.api.template_merge import merged
from tuneyard.api.train import TrainTask

FindTemplate = Callable[[str], ModelTemplate]
"""Name -> template. Raises BadInput where there is none of that name."""
LARGEST_BYTES = 32_000
"""A hub keeps a template's defaults in the status of each job that runs by it."""
JOB_FIELDS = ("image", "setup", "env", "storage", "tracking", "retries", "placement", "deadline", "expectedDuration")
_KINDS: Mapping[str, type[Fields]] = {"train": TrainTask, "score": ScoreTask, "rank": RankTask}
_STAND_IN: Mapping[str, Mapping[str, Any]] = {
    "train": {"model": {"name": "any/model"}, "data": {"source": "/any/data.jsonl"}},
    "score": {"model": {"name": "any/model"}, "data": {"source": "/any/data.jsonl", "reference": "answer"}},
    "rank": {"table": {"source": "/any/rows.parquet"}, "features": {"dense": ["any"]}, "model": {"layers": [["dlrm"]]}},
}
"""What a job would have to give at the least, so that a template can be judged without one."""


@dataclass(frozen=True)
class Filled:
    """`spec` of a JobSpec with nothing left to fill in. `problems`: where the job says otherwise than its template allows."""

    spec: dict[str, Any]
    problems: tuple[tuple[Path, str], ...] = ()


def no_template(name: str) -> ModelTemplate:
    """`FindTemplate` where there is none."""
    raise BadInput(
        f"there is no ModelTemplate {name} here",
        f"put it into the same file, or give its file: --templates FILE; from a hub: kubectl get modeltemplate {name} -o yaml > FILE",
    )


def template_from(item: Mapping[str, Any]) -> ModelTemplate:
    """A ModelTemplate as an API server holds it. Raises BadInput where it cannot be read, or no job can be made of it."""
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
    """The template that a JobSpec, as an API server holds it, keeps in its status since it began; None where it has not begun, or names
    another now. Raises BadInput where it cannot be read."""
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
    """A JobSpec as an API server holds it, by the template that its status keeps since it began, else by that which `find` knows. Raises
    BadInput as `filled_manifest` does."""
    kept = kept_template(item)
    return filled_manifest(item, find if kept is None else lambda _: kept)


def filled_manifest(manifest: Mapping[str, Any], find: FindTemplate) -> dict[str, Any]:
    """A JobSpec, as its file or an API server holds it, with the defaults of its template. Raises BadInput where there is no such template,
    or the job says otherwise than it allows."""
    spec = manifest.get("spec")
    name = template_of(spec)
    if not name or not isinstance(spec, Mapping):
        return dict(manifest)
    made = filled(spec, name, find(name).spec, folder_of(manifest.get("metadata")))
    if made.problems:
        raise BadInput("\n".join(f"{show_path(path)}: {reason}" for path, reason in made.problems), "leave these fields out")
    return {**manifest, "spec": made.spec}


def template_of(spec: Any) -> str:
    """The name of the template that the `spec` of a JobSpec asks for, as written; empty where it asks for none."""
    name = spec.get("template") if isinstance(spec, Mapping) else None
    return name if isinstance(name, str) else ""


def folder_of(metadata: Any) -> str:
    """Where a job writes below the output that a template names: NAMESPACE/NAME-UID on a hub, NAME in a file; as far as these are known."""
    known = metadata if isinstance(metadata, Mapping) else {}
    namespace, name, uid = (str(known.get(key) or "") for key in ("namespace", "name", "uid"))
    return "/".join(part for part in (namespace, "-".join(part for part in (name, uid[:8]) if part)) if part)


def filled(spec: Mapping[str, Any], name: str, goal: ModelTemplateGoal, folder: str = "") -> Filled:
    """A `spec` as written, with what it leaves out from the template `name`. `folder`: its own, below the template's output. What has a
    wrong type stays, for the models to refuse."""
    own = {key: value for key, value in spec.items() if key != "template"}
    tasks = own.pop("tasks", None)
    result = merged(goal.job, own, Job)
    problems = list(_overruled(goal, name, "job", result, ("spec",)))
    if isinstance(tasks, list):
        result["tasks"] = [_task(task, goal) for task in tasks]
        for index, task in enumerate(result["tasks"]):
            kind = _kind_of(task)
            for part in (kind, "resources") if kind else ():
                problems += _overruled(goal, name, part, task.get(part), ("spec", "tasks", index, part), kind)
    elif tasks is not None:
        result["tasks"] = tasks
    root = _at(goal.job, ["storage", "output"])
    if isinstance(root, str) and folder and _at(own, ["storage", "output"]) is None and isinstance(result.get("storage"), Mapping):
        result["storage"]["output"] = f"{root.rstrip('/')}/{folder}"
    return Filled(result, tuple(problems))


def template_problems(goal: ModelTemplateGoal) -> list[tuple[Path, str]]:
    """What is wrong with a template, whatever job takes it: paths start at the top of the ModelTemplate."""
    size = len(json.dumps(goal.to_yaml_dict()))
    if size > LARGEST_BYTES:
        return [(("spec",), f"{size:,} bytes as JSON, and {LARGEST_BYTES:,} is the most")]
    found: list[tuple[Path, str]] = [
        (("spec", "job", key), f"a template does not give it: {', '.join(JOB_FIELDS)} are what it may")
        for key in goal.job
        if key not in JOB_FIELDS
    ]
    for number, path in enumerate(goal.fixed):
        if _at(goal.model_dump(by_alias=True), path.split(".")) is None:
            found.append((("spec", "fixed", number), f"{path} is not among the template's defaults: give it there, such as job.image"))
    return found or _judged(goal)


def _judged(goal: ModelTemplateGoal) -> list[tuple[Path, str]]:
    """The template as part of a job that has a task of each kind for which it gives something."""
    kinds = [kind for kind in _KINDS if getattr(goal, kind)] or ["train"]
    tasks = [
        {"name": kind, kind: merged(_STAND_IN[kind], getattr(goal, kind), _KINDS[kind]), "resources": _resources(goal, kind)}
        for kind in kinds
    ]
    value = {"metadata": {"name": "any"}, "spec": {**goal.job, "tasks": tasks}}
    try:
        job = JobSpec.model_validate(value)
    except ValidationError as error:
        wrong = explain(error, JobSpec, value)
    else:
        wrong = [(violation.path, violation.reason) for violation in check_rules(job)]
        wrong += [(file.path, f"{file.text} lies beside a file, and a template beside none: name a URI") for file in local_files(job.spec)]
    return list({_in_template(path, kinds): reason for path, reason in wrong}.items())


def _in_template(path: Path, kinds: list[str]) -> Path:
    match path:
        case ("spec", "tasks", int(index), *rest) if rest and index < len(kinds):
            return ("spec", *rest)
        case ("spec", *rest) if rest:
            return ("spec", "job", *rest)
    return path


def _task(task: Any, goal: ModelTemplateGoal) -> Any:
    kind = _kind_of(task)
    if not kind:
        return task
    result = {**task, kind: merged(getattr(goal, kind), task[kind], _KINDS[kind])}
    own = task.get("resources")
    if goal.resources and (own is None or isinstance(own, Mapping)):
        result["resources"] = merged(_resources(goal, kind), own or {}, Resources)
    return result


def _resources(goal: ModelTemplateGoal, kind: str) -> dict[str, Any]:
    """What a template gives of `resources` to a task of a kind: ranks are counted in workers, engines in instances."""
    not_its_own = "workers" if kind == "score" else "instances"
    return {key: value for key, value in goal.resources.items() if key != not_its_own}


def _kind_of(task: Any) -> str:
    """The kind of a task that templates know; empty for others, and for what is none."""
    return next((kind for kind in _KINDS if isinstance(task, Mapping) and isinstance(task.get(kind), Mapping)), "")


def _overruled(goal: ModelTemplateGoal, name: str, part: str, given: Any, root: Path, kind: str = "") -> Iterator[tuple[Path, str]]:
    """Where a filled part of a job has another value than the template fixes."""
    default = _resources(goal, kind) if part == "resources" else getattr(goal, part)
    for path in goal.fixed:
        first, *rest = path.split(".")
        if first != part or (wanted := _at(default, rest)) is None:
            continue
        found = _at(given, rest)
        if found != wanted:
            yield (*root, *rest), f"the ModelTemplate {name} fixes it to {json.dumps(wanted)}; found {json.dumps(found)}"


def _at(value: Any, path: list[str]) -> Any:
    for step in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value


def said_by(name: str, template: ModelTemplateGoal, path: Path, tasks: Any) -> str:
    """Where a template sets what is wrong at `path` of a filled job, for the end of a complaint. Empty where the job itself says it."""
    match path:
        case ("spec", "tasks", int(index), str(part), *rest):
            of_task = tasks[index] if isinstance(tasks, list) and index < len(tasks) else None
            own, default, shown = (
                _at(of_task, [part, *map(str, rest)]),
                _at(getattr(template, part, None), [*map(str, rest)]),
                (part, *rest),
            )
        case ("spec", *rest):
            own, default, shown = None, _at(template.job, [*map(str, rest)]), ("job", *rest)
        case _:
            return ""
    return f" (the ModelTemplate {name} gives it: spec.{show_path(tuple(shown))})" if own is None and default is not None else ""
