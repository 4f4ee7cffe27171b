"""Expressions that only a Schedule fills, in a JobSpec that no Schedule has made: nobody would put a date there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tuneyard.admission.refusal import Refusal
from tuneyard.api import JobSpec
from tuneyard.api.loading_yaml import Path

_OPEN = "{{"
_EXPRESSION = re.compile(r"\{\{\s*run\.(?:date|time|name)\b[^{}]*\}\}")
_PROSE = ("rubric", "chatTemplate")
"""Fields that speak to a model."""
NEXT_STEP = "write the value itself, or make the file a Schedule (kind: Schedule, docs/schedules.md)"


def unfilled(job: JobSpec) -> Iterator[Refusal]:
    """A refusal for each text of a JobSpec with an expression such as `{{ run.date }}`."""
    if _OPEN not in job.spec.model_dump_json(exclude_defaults=True):
        return
    for path, expression in _expressions(job.spec.model_dump(by_alias=True, exclude_defaults=True, mode="json"), ("spec",)):
        yield Refusal(path, f"{expression} has a value in runs of a Schedule only; {NEXT_STEP}")


def _expressions(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        found = _EXPRESSION.search(value)
        if found is not None:
            yield path, found[0]
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _PROSE:
                yield from _expressions(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _expressions(inner, (*path, index))
