"""Which tasks of a recorded JobSpec wait for which others. Records may be of any version, and of any form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def upstream(spec: Mapping[str, Any]) -> dict[str, list[str]]:
    """Tasks with the tasks that they wait for, in the order of the file: those of `dependsOn`, and of each `from` of a model or of data."""
    tasks = tasks_of(spec)
    names = {str(task["name"]) for task in tasks}
    found: dict[str, list[str]] = {}
    for task in tasks:
        name, needs = str(task["name"]), task.get("dependsOn")
        wanted = [*(map(str, needs) if isinstance(needs, list) else ()), *_made_by(task)]
        found[name] = [each for each in dict.fromkeys(wanted) if each in names - {name}]
    return found


def _made_by(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "from" and isinstance(inner, str):
                yield inner
            else:
                yield from _made_by(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _made_by(inner)


def tasks_of(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tasks of a JobSpec that have a name."""
    inner = spec.get("spec")
    tasks = inner.get("tasks") if isinstance(inner, Mapping) else None
    return [task for task in tasks if isinstance(task, Mapping) and task.get("name")] if isinstance(tasks, list) else []
