"""The metrics of a score task's rows, and the figures that it can have: of the table of metrics, of the own metrics in its JobSpec, and of
lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tuneyard.api.score import JUDGED, PREFERRED
from tuneyard.metrics import FIGURES, METRICS, Figure, harness_figure, own_figures

_METRICS = ("metrics", "ownMetrics")


def known_figures(spec: Mapping[str, Any] | None, task: str, told: Iterable[str] = ()) -> Mapping[str, Figure]:
    """The figures of a task by name, each with its title and direction. `spec`: the JobSpec as a report, history or a hub holds it, which
    may be of another version; what cannot be read in it is left out. `told`: names of figures that the task has; those of
    lm-evaluation-harness are known by their names alone."""
    harness = {name: figure for name in told if (figure := harness_figure(name)) is not None}
    goal = (spec or {}).get("spec")
    tasks = goal.get("tasks") if isinstance(goal, Mapping) else None
    for each in tasks if isinstance(tasks, list) else []:
        score = each.get("score") if isinstance(each, Mapping) and each.get("name") == task else None
        names = score.get("ownMetrics") if isinstance(score, Mapping) else None
        if isinstance(names, list):
            return {**own_figures([name for name in names if isinstance(name, str)]), **FIGURES, **harness}
    return {**FIGURES, **harness}


def measured_in(score: Mapping[str, Any]) -> list[str]:
    """Names of the metrics of a score task's rows, as `measured` of a ScoreTask. `score`: as in a report, in history or of a hub, which may
    be of another version; what cannot be read in it is left out."""
    judge = score.get("judge")
    if judge:
        return [*(PREFERRED if isinstance(judge, Mapping) and judge.get("against") else JUDGED)]
    given, own = ([name for name in each if isinstance(name, str)] if isinstance(each, list) else [] for each in map(score.get, _METRICS))
    return [*(name for name in given if name in METRICS), *(name for name in own if name.count(":") in (1, 2))]
