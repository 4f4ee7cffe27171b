"""Two runs side by side: state, time, cost, the figures of each task, and what differs in their specs. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tuneyard.cli.history.plans import plan_figures
from tuneyard.cli.output import figures_text, rounded_text
from tuneyard.cluster.submission import differences
from tuneyard.tracking import comparable
from tuneyard.tracking.formats import percent, rate
from tuneyard.tracking.known_figures import known_figures

Row = dict[str, Any]
_LAST = {"last loss": "loss", "last tokens/s": "tokens_per_s", "last mfu": "mfu"}
_MOST_DIFFERENCES = 40
_TEXTS: Mapping[str, Callable[[float], str]] = {"mfu": percent, "last mfu": percent, "tokens_per_s": rate, "last tokens/s": rate}


@dataclass(frozen=True)
class Figure:
    """One figure of both runs; None where a run has none. `higher_is_better`: None where no direction is known."""

    name: str
    one: float | str | None
    other: float | str | None
    higher_is_better: bool | None = None

    @property
    def difference(self) -> float | None:
        if isinstance(self.one, int | float) and isinstance(self.other, int | float):
            return self.other - self.one
        return None

    @property
    def better(self) -> str | None:
        """`A` or `B`; None: equal, or not known."""
        change = self.difference
        if not change or math.isnan(change) or self.higher_is_better is None:
            return None
        return "B" if (change > 0) == self.higher_is_better else "A"


@dataclass(frozen=True)
class Comparison:
    """`notes`: why figures are not comparable; `differences`: of the specs, `spec.tasks[0].train.steps: 10 -> 20`."""

    figures: tuple[Figure, ...]
    notes: tuple[str, ...]
    differences: tuple[str, ...]

    def rows(self) -> list[Row]:
        texts = [(each, _texts(each)) for each in self.figures]
        return [
            {"figure": each.name, "A": one, "B": other, "difference": _change(each), "better": each.better} for each, (one, other) in texts
        ]

    def facts(self) -> Row:
        """The same for programs."""
        figures = [
            {"name": each.name, "a": each.one, "b": each.other, "difference": each.difference, "better": each.better}
            for each in self.figures
        ]
        return {"figures": figures, "notes": list(self.notes), "spec": list(self.differences)}


def compared(one: Mapping[str, Any], other: Mapping[str, Any]) -> Comparison:
    """Two jobs as `history show -o json` gives them."""
    left, right = dict(_figures(one)), dict(_figures(other))
    directions = {**dict(_directions(one)), **dict(_directions(other))}
    told = (Figure(name, left.get(name), right.get(name), directions.get(name)) for name in dict.fromkeys([*left, *right]))
    figures = tuple(each for each in told if {each.one, each.other} != {None} and (each.name != "cost" or each.one or each.other))
    changed = list(differences(_spec(one), _spec(other)))
    more = [f"and {len(changed) - _MOST_DIFFERENCES} more"] if len(changed) > _MOST_DIFFERENCES else []
    return Comparison(figures, tuple(_notes(one, other)), (*changed[:_MOST_DIFFERENCES], *more))


def _figures(job: Mapping[str, Any]) -> Iterator[tuple[str, float | str | None]]:
    attempts = job["attempts"]
    yield "job", f"{job['name']} ({job['id'][:8]})"
    yield "status", job["status"]
    yield "attempts", len(attempts)
    yield "failures", sum(1 for attempt in attempts if attempt["failure"])
    yield "seconds", _seconds(job["placed_at"] or job["started_at"], job["ended_at"])
    yield "gpu_hours", job["gpu_hours"]
    yield "cost", job["cost"]
    last = {attempt["task"]: attempt for attempt in attempts}
    for task, attempt in last.items():
        place = f"{attempt['gpus'] or attempt['workers']} x {attempt['sku']}" if attempt["sku"] else None
        yield f"{task}: placement", place
        for name, value in plan_figures(attempt).items():
            yield f"{task}: {name}", value
        for metric, value in sorted(attempt["scores"].items()):
            yield f"{task}: {metric}", value
        if attempt["series"]:
            for name, column in _LAST.items():
                yield f"{task}: {name}", attempt["series"][-1].get(column)


def _directions(job: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Whether higher is better, of each figure of a score task whose direction is known."""
    for attempt in job["attempts"]:
        known = known_figures(job["spec"], attempt["task"], attempt["scores"])
        yield from ((f"{attempt['task']}: {name}", known[name].higher_is_better) for name in attempt["scores"] if name in known)


def _notes(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Score tasks of one name on different data: their metrics are not comparable."""
    tasks = [[task for task in _spec(job).get("tasks", []) if task.get("score")] for job in (one, other)]
    shared = {task["name"] for task in tasks[0]} & {task["name"] for task in tasks[1]}
    both = [{**task, "name": f"{side}/{task['name']}"} for side, own in zip("AB", tasks, strict=True) for task in own]
    groups = comparable({"spec": {"tasks": both}}, [task["name"] for task in both])
    for name in sorted(shared):
        if not any({f"A/{name}", f"B/{name}"} <= set(group) for group in groups):
            yield f"{name}: scored on different rows or prompts, so that its metrics do not compare"


def _spec(job: Mapping[str, Any]) -> Mapping[str, Any]:
    return (job["spec"] or {}).get("spec") or {}


def _seconds(began: str | None, ended: str | None) -> float | None:
    if not began or not ended:
        return None
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()


def _texts(figure: Figure) -> list[str | None]:
    """Both values, with equal decimals where both are figures."""
    pair = (figure.one, figure.other)
    if as_everywhere := _TEXTS.get(figure.name.rpartition(": ")[2]):
        return [as_everywhere(value) if isinstance(value, int | float) else value for value in pair]
    told = iter(figures_text([float(value) for value in pair if isinstance(value, int | float)]))
    return [next(told) if isinstance(value, int | float) else value for value in pair]


def _change(figure: Figure) -> str | None:
    change = figure.difference
    if change is None or not math.isfinite(change):
        return None
    share = f" ({change / abs(figure.one):+.1%})" if isinstance(figure.one, int | float) and figure.one else ""
    return f"{'+' if change > 0 else ''}{rounded_text(change)}{share}"
