"""A task's columns over steps, as report.json holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def last(task: Mapping[str, Any], column: str) -> Any:
    """The last value of a column; None without one."""
    values = (task.get("series") or {}).get(column) or [None]
    return values[-1]


def evaluations_of(task: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Step and loss of each evaluation."""
    return [(step, loss) for step, loss in task.get("eval_losses") or task.get("evaluations") or [] if loss is not None]


def over_steps(task: Mapping[str, Any], column: str) -> list[tuple[float, float]]:
    """Step and value of a column, without steps that lack a value."""
    series = task.get("series") or {}
    if series.get(column):
        return [(step, value) for step, value in zip(series["step"], series[column], strict=False) if value is not None]
    if column == "loss":
        first = (task.get("resumed_from") or 0) + 1
        return [(first + index, loss) for index, loss in enumerate(task.get("losses") or []) if loss is not None]
    return []
