"""A small task on which a rule's example, or its fix, is put: for the docs page, and for the test that each fix works."""

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
"""By kind, what a task has to say at the least."""


def task_with(rule: Rule, fix: Fix | None = None) -> Task:
    """The smallest task that breaks `rule`; with `fix`, the same task after it."""
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
