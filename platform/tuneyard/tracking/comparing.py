"""Which score tasks of a job are comparable: tasks that scored the same rows against the same reference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_OF_ROWS = ("source", "from", "path", "split", "fileType", "limit", "reference")
_DEFAULTS = {"prompt": "prompt"}


def comparable(spec: Mapping[str, Any] | None, names: Sequence[str]) -> list[list[str]]:
    """`names` of score tasks in groups of the same data: source, rows, prompt and reference column. Both orders are kept.

    `spec`: the JobSpec as a report holds it. A report without one, or with other tasks, is of one group.
    """
    tasks = (spec or {}).get("spec", {}).get("tasks", [])
    data = {task.get("name"): (task.get("score") or {}).get("data") or {} for task in tasks}
    groups: dict[str, list[str]] = {}
    for name in names:
        own = _DEFAULTS | data.get(name, {})
        key = json.dumps([own.get(field) for field in (*_OF_ROWS, *_DEFAULTS)])
        groups.setdefault(key, []).append(name)
    return list(groups.values())
