"""Refuses expressions of Schedules, such as `{{ run.date }}`, in a JobSpec: they have values in runs of a Schedule only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tuneyard.admission.refusal import Refusal
from tuneyard.api import JobSpec
from tuneyard.api.loading_yaml import Path

_OPEN = "{{"
_EXPRESSION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_PLACES = (
    *("source", "path", "split", "name", "revision", "model", "output", "url", "uri", "image", "schema"),
    *("project", "entity", "experiment", "programDir", "metricsDir", "workingDir"),
)
"""Fields that name something that is opened or asked for. Commands and prose may have braces of their own."""
_NEXT_STEP = "write the value itself, or make the file a Schedule (kind: Schedule, docs/schedules.md)"


def unfilled(job: JobSpec) -> Iterator[Refusal]:
    """A refusal for each place of a JobSpec that still holds an expression."""
    if _OPEN not in job.spec.model_dump_json(exclude_defaults=True):
        return
    for path, expression in _expressions(job.spec.model_dump(by_alias=True, exclude_defaults=True, mode="json"), ("spec",)):
        yield Refusal(path, f"{expression} has a value in runs of a Schedule only", _NEXT_STEP)


def _expressions(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        found = _EXPRESSION.search(value) if path[-1] in _PLACES else None
        if found is not None:
            yield path, found[0]
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key == "schema" and isinstance(inner, dict):
                continue  # a JSON schema has names of its own
            yield from _expressions(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _expressions(inner, (*path, index))
