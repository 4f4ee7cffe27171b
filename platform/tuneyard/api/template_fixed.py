"""Conflicts of a job with the fields that its ModelTemplate fixes. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tuneyard.api.loading_yaml import Path
from tuneyard.api.schedule import ModelTemplateGoal
from tuneyard.api.tasks import TASK_KINDS
from tuneyard.api.template_merge import TEMPLATED
from tuneyard.api.tuned_settings import usually_searched


def overruled(goal: ModelTemplateGoal, name: str, part: str, given: Any, root: Path, kind: str = "") -> Iterator[tuple[Path, str]]:
    """Conflicts of a filled part of a job with the values that the template `name` fixes. `root`: path of the part in the job."""
    default = resources_of(goal, kind) if part == "resources" else getattr(goal, part)
    for path in goal.fixed:
        first, *rest = path.split(".")
        if first != part or (wanted := at(default, rest)) is None:
            continue
        found = at(given, rest)
        if not _holds(wanted, found, joined=rest == ["env"]):
            said = "nothing" if found is None else _shown(found)
            yield (*root, *rest), f"the ModelTemplate {name} fixes it to {_shown(wanted)}; found {said}"


def overruled_in_task(goal: ModelTemplateGoal, name: str, task: Any, kinds: Mapping[str, str], root: Path) -> Iterator[tuple[Path, str]]:
    """Conflicts of the parts of one task, as in `overruled`. `kinds`: the kinds of the job's tasks by name."""
    kind = kind_of(task)
    if kind in TEMPLATED:
        for path, reason in overruled(goal, name, kind, task[kind], (*root, kind)):
            if not _goes_on(task[kind], kinds, path[len(root) + 1 :]):
                yield path, reason
        yield from overruled(goal, name, "resources", task.get("resources"), (*root, "resources"), kind)
    elif kind == "tune":
        yield from _searched(goal, name, task["tune"], kinds, root)


def _goes_on(body: Mapping[str, Any], kinds: Mapping[str, str], path: Path) -> bool:
    """Whether a model other than the fixed one comes from a train task of the same job, which itself starts from the fixed model."""
    source = at(body, ["model", "from"])
    return path[:1] == ("model",) and isinstance(source, str) and kinds.get(source) == "train"


def _searched(
    goal: ModelTemplateGoal, name: str, tune: Mapping[str, Any], kinds: Mapping[str, str], root: Path
) -> Iterator[tuple[Path, str]]:
    """Problems of a tune task: each fixed field that its search would change."""
    tuned = tune.get("task")
    kind = kinds.get(tuned, "") if isinstance(tuned, str) else ""
    fixed = [path for path in goal.fixed if path.partition(".")[0] in (kind, "resources")]
    space = tune.get("space")
    if isinstance(space, Mapping) and space:
        tried = {str(setting): str(setting) if str(setting).startswith("resources.") else f"{kind}.{setting}" for setting in space}
        for setting, path in tried.items():
            if any(_overlap(path, each) for each in fixed):
                yield (*root, "tune", "space", setting), f"the ModelTemplate {name} fixes it: leave it out of the space"
        return
    changed = [path if path.startswith("resources.") else f"{kind}.{path}" for path in usually_searched(kind)]
    if found := [each for each in fixed if any(_overlap(each, path) for path in changed)]:
        reason = f"the ModelTemplate {name} fixes {', '.join(found)}, which a search would change: list the settings to try in tune.space"
        yield (*root, "tune"), reason


def _shown(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):
        return "a value that cannot be shown"


def _overlap(one: str, other: str) -> bool:
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _holds(wanted: Any, found: Any, *, joined: bool) -> bool:
    """Whether a value equals the fixed one. For variables, which are joined by name: whether it includes the fixed ones."""
    if joined and isinstance(wanted, list) and isinstance(found, list):
        return all(each in found for each in wanted)
    return bool(found == wanted)


def resources_of(goal: ModelTemplateGoal, kind: str) -> dict[str, Any]:
    """A template's `resources` for a kind of task: ranks are counted in workers, engines in instances."""
    not_its_own = "workers" if kind == "score" else "instances"
    return {key: value for key, value in goal.resources.items() if key != not_its_own}


def kind_of(task: Any) -> str:
    """The kind of a task as written; empty if it has none."""
    return next((kind for kind in TASK_KINDS if isinstance(task, Mapping) and isinstance(task.get(kind), Mapping)), "")


def kinds_of(tasks: list[Any]) -> dict[str, str]:
    """Name -> kind of the tasks of a job, as written."""
    return {task["name"]: kind_of(task) for task in tasks if isinstance(task, Mapping) and isinstance(task.get("name"), str)}


def at(value: Any, path: list[str]) -> Any:
    """The value at a path of mappings; None if it is absent."""
    for step in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value
