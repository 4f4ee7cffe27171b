"""A task's columns over steps, as report.json holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api.evaluation import of_a_program
from tuneyard.metrics import FIGURES

MOST_DRAWN = 6


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


def held_out(task: Mapping[str, Any], figure: str) -> list[tuple[float, float]]:
    """Step and value of a figure of held-out rows, without evaluations that lack it."""
    points = [(each["step"], each.get(figure)) for each in task.get("figures") or []]
    return [(float(step), float(value)) for step, value in points if isinstance(value, int | float)]


def figures_over_steps(task: Mapping[str, Any]) -> list[str]:
    """Names of the figures of held-out rows that a report draws: of a ranker its normalised entropy, of a program the first ones."""
    found = dict.fromkeys(name for each in task.get("figures") or [] for name in each)
    return [name for name in found if name == "normalised_entropy"] or [*of_a_program(found)][:MOST_DRAWN]


def shown(figure: str) -> str:
    """The name of a figure for people: its title, for a metric of the table."""
    return FIGURES[figure].title if figure in FIGURES else figure.replace("_", " ")
