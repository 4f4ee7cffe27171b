"""A minimal task for a rule's example and its fixes. The docs page shows them, and a test checks that each fix works."""

from __future__ import annotations

import copy
from typing import Any

from tuneyard.api.rules_case import Fix, Rule
from tuneyard.api.tasks import Task

SMALLEST: dict[str, dict[str, Any]] = {
    "train": {"model": {"name": "model"}, "data": {"source": "/data.jsonl"}},
    "rank": {"table": {"source": "/rows.parquet"}, "features": {"dense": ["age"]}, "model": {"layers": [["dlrm"]]}},
    "score": {"model": {"name": "model"}, "data": {"source": "/data.jsonl"}},
}
"""Required fields of a task, by kind."""


def task_with(rule: Rule, fix: Fix | None = None) -> Task:
    """The smallest task that breaks `rule`. With `fix`: the same task with the fix applied."""
    fields: dict[str, Any] = {"name": "task", rule.kind: copy.deepcopy(SMALLEST[rule.kind])}
    for name, value in {**rule.example, **(fix or {})}.items():
        _put(fields, name.split("."), value)
    return Task.model_validate(fields)


def _put(group: dict[str, Any], path: list[str], value: Any) -> None:
    *parents, last = path
    for part in parents:
        inner = group.get(part)
        group[part] = inner if isinstance(inner, dict) else {}
        group = group[part]
    if value is None:
        group.pop(last, None)
    else:
        group[last] = copy.deepcopy(value)
