"""Useless outputs of a score task: empty outputs, outputs that end in a loop, and outputs that were cut off.

They qualify every figure that is computed from outputs: an empty output has a ROUGE too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.metrics import METRICS

KINDS = {
    "empty": ("empty outputs", "empty"),
    "looping": ("outputs that end in a loop", "looping"),
    "cut_off": ("outputs that were cut off", "cut off"),
    "off_schema": ("outputs that do not follow the schema", "off the schema"),
    "unanswered": ("outputs without an answer", "without an answer"),
}
"""Count of report.json -> its title, and the word for it in a sentence."""
_OF_OUTPUTS = {figure.name for metric in METRICS.values() if "output" in metric.needs for figure in metric.figures}


@dataclass(frozen=True)
class Useless:
    """Outputs of one kind. `share`: of all rows, 0 to 1."""

    name: str
    title: str
    short: str
    count: int
    share: float


def useless_of(task: Mapping[str, Any]) -> list[Useless]:
    """The counts of a score task, with those that are zero; empty for a task that has not counted, such as a ranker's."""
    rows = task.get("rows")
    return [
        Useless(name, title, short, task[name], task[name] / rows)
        for name, (title, short) in KINDS.items()
        if rows and task.get(name) is not None
    ]


def words_of(task: Mapping[str, Any]) -> str:
    """`240 empty, 60 cut off, of 300`; `none of 300 empty, looping or cut off`; empty for a task that has not counted."""
    found = useless_of(task)
    if not found:
        return ""
    some = [f"{each.count:,} {each.short}" for each in found if each.count]
    return f"{', '.join(some)} of {task['rows']:,}" if some else f"none of {task['rows']:,} empty, looping or cut off"


def qualified(figure: str) -> bool:
    """Whether a figure is computed from outputs. One of another version counts as such; one of lm-evaluation-harness does not, because its
    task counts outputs and likelihoods of all of its tasks together."""
    if "/" in figure:
        return False
    return figure in _OF_OUTPUTS or figure not in {each.name for metric in METRICS.values() for each in metric.figures}
