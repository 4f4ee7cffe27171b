"""YAML of a page as the file that a reader would make of it.

A page shows whole objects, or a part: tasks, fields of `spec`, fields of a train task. A part is put where its fields belong, with the
least that a valid file needs around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from tuneyard.api import BadInput, Job, ScoreTask, Task, TrainTask
from tuneyard.api.base import API_VERSION
from tuneyard.api.cluster import ClusterGoal
from tuneyard.api.loading import KINDS
from tuneyard.api.loading_yaml import read_trees
from tuneyard.api.schedule import ScheduleGoal
from tuneyard.api.tasks import TASK_KINDS
from tuneyard.api.team import TeamGoal
from tuneyard.catalog.gpu_entries import entries_of
from tuneyard.cli.checks import check_file
from tuneyard.cli.simulate.clusters import read_clusters

_TRAIN = {"model": {"name": "meta-llama/Llama-3.1-8B"}, "data": {"source": "chats.jsonl"}}
_SCORE = {"model": {"name": "gpt2"}, "data": {"source": "rows.jsonl", "reference": "answer"}}
_SKUS = {"skus": [{"name": "cpu", "nodes": 1, "gpusPerNode": 2}]}


def complaint(text: str, folder: Path) -> str | None:
    """What `tuneyard validate` says about the file that `text` stands for; None if nothing."""
    trees, problems = read_trees(text)
    problems = [*problems, *(problem for tree in trees for problem in tree.problems)]
    if problems:
        return "; ".join(problem.line("yaml") for problem in problems)
    documents = list(yaml.safe_load_all(text))
    if all(isinstance(each, dict) and "kind" in each for each in documents):
        return _refused(text, folder) if {each["kind"] for each in documents} <= set(KINDS) else None
    if isinstance(documents[0], dict) and "clusters" in documents[0]:
        return _refused_by_simulate(text, folder)
    if isinstance(documents[0], dict) and "gpus" in documents[0]:
        return _refused_as_kinds(text)
    found = [_refused(yaml.safe_dump(candidate), folder) for candidate in _files(documents[0])]
    if None in found:
        return None
    return found[0] if found else "no kind, task or group has fields of these names"


def _refused(text: str, folder: Path) -> str | None:
    file = folder / "page.yaml"
    file.write_text(text)
    try:
        check_file(file)
    except BadInput as error:
        return error.cause
    return None


def _refused_by_simulate(text: str, folder: Path) -> str | None:
    file = folder / "clusters.yaml"
    file.write_text(text)
    try:
        read_clusters(file)
    except BadInput as error:
        return error.cause
    return None


def _refused_as_kinds(text: str) -> str | None:
    try:
        entries_of(text, "gpus.yaml")
    except BadInput as error:
        return error.cause
    return None


def _files(part: Any) -> Iterator[dict[str, Any]]:
    """Whole files that a part may come from, the likeliest first."""
    if isinstance(part, list):
        yield _job({"tasks": part})
        return
    if set(part) == {"spec"}:
        part = part["spec"]
    if _has(Task, part):
        yield _job({"tasks": [{"name": "page", **part}]})
    if _has(TrainTask, part):
        yield _job({"tasks": [{"name": "page", "train": part}]})
    if _has(ScoreTask, part):
        yield _job({"tasks": [{"name": "page", "score": part}]})
    if _has(Job, part):
        yield _job({"tasks": [{"name": "page", "train": {}}], **part})
    for kind, goal, least in (("Cluster", ClusterGoal, _SKUS), ("Team", TeamGoal, {}), ("Schedule", ScheduleGoal, {})):
        if _has(goal, part):
            yield _object(kind, {**least, **part})


def _has(model: type[BaseModel], part: dict[str, Any]) -> bool:
    return set(part) <= {field.alias or name for name, field in model.model_fields.items()}


def _object(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "page"}, "spec": spec}


def _job(spec: dict[str, Any]) -> dict[str, Any]:
    """A JobSpec whose tasks have model and data, and in which the tasks that others name exist."""
    tasks = [_whole(task) for task in spec["tasks"]]
    named = {name for task in tasks for name in _names(task)}
    missing = sorted(named - {task.get("name") for task in tasks})
    return _object("JobSpec", {**spec, "tasks": [*tasks, *({"name": name, "train": _TRAIN} for name in missing)]})


def _whole(task: dict[str, Any]) -> dict[str, Any]:
    least = {"train": _TRAIN, "score": _SCORE}
    found = {key: {**least[key], **value} if key in least else value for key, value in task.items()}
    return found if {*TASK_KINDS} & set(found) else {**found, "train": _TRAIN}


def _names(task: dict[str, Any]) -> Iterator[str]:
    """Names of tasks that a task refers to."""
    yield from task.get("dependsOn", [])
    if "tune" in task:
        yield task["tune"]["task"]
    for body in (task.get("train", {}), task.get("score", {})):
        for source in (body.get("model", {}), body.get("data", {})):
            if "from" in source:
                yield source["from"]
