"""The figures that a score task can have: those of the table of metrics, and those of the own metrics in its JobSpec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.metrics import FIGURES, Figure, own_figures


def known_figures(spec: Mapping[str, Any] | None, task: str) -> Mapping[str, Figure]:
    """The figures of a task by name, each with its title and direction. `spec`: the JobSpec as a report, history or a hub holds it, which
    may be of another version; what cannot be read in it is left out."""
    goal = (spec or {}).get("spec")
    tasks = goal.get("tasks") if isinstance(goal, Mapping) else None
    for each in tasks if isinstance(tasks, list) else []:
        score = each.get("score") if isinstance(each, Mapping) and each.get("name") == task else None
        names = score.get("ownMetrics") if isinstance(score, Mapping) else None
        if isinstance(names, list):
            return {**own_figures([name for name in names if isinstance(name, str)]), **FIGURES}
    return FIGURES
