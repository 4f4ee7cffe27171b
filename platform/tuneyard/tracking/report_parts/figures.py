"""Figures of score tasks: a table of one task, and tables of several side by side.

A figure of outputs stands beside the counts of outputs that say nothing: a mean does not tell that most outputs are empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuneyard.metrics import FIGURES, Figure
from tuneyard.tracking.comparing import comparable, prompt_forms
from tuneyard.tracking.formats import number, percent
from tuneyard.tracking.known_figures import known_figures
from tuneyard.tracking.paired_rows import title_of, value_text, verdict
from tuneyard.tracking.useless import qualified, useless_of, words_of

_SHARE = "share of "


@dataclass(frozen=True)
class FigureRow:
    """A figure, its bounds at 95 % confidence, and the useless outputs among those that it was computed from."""

    title: str
    value: str
    interval: str
    useless: str


@dataclass(frozen=True)
class Value:
    """A figure of one of several tasks."""

    text: str
    useless: str


@dataclass(frozen=True)
class Compared:
    """One metric of several score tasks. `change`, `verdict` and `better` are of the last against the first, where there are two on the
    same data. The verdict is that of their rows, where these were compared; `better`: None where there is none."""

    metric: str
    values: list[Value]
    change: str = ""
    relative: str = ""
    verdict: str = ""
    better: bool | None = None


@dataclass(frozen=True)
class Comparison:
    """A table of score tasks side by side. `with_change`: they are two, on the same data."""

    title: str
    names: list[str]
    rows: list[Compared]
    with_change: bool
    note: str


def figures_of(task: Mapping[str, Any]) -> list[FigureRow]:
    """The figures of a score task."""
    intervals = task.get("intervals") or {}
    return [
        FigureRow(
            title_of(name),
            value_text(name, value),
            " – ".join(value_text(name, bound) for bound in intervals.get(name) or ()),
            words_of(task) if qualified(name) else "",
        )
        for name, value in (task.get("metrics") or {}).items()
    ]


def comparisons_of(
    spec: Mapping[str, Any] | None, tasks: Mapping[str, Mapping[str, Any]], paired: Sequence[Mapping[str, Any]] = ()
) -> list[Comparison]:
    """A table for each group of score tasks on the same data; for other score tasks one table of all, without changes.

    `paired`: comparisons of rows, as `scoring.paired.Comparison` writes them.
    """
    judged: dict[tuple[str, ...], dict[str, Any]] = {
        (each["against"], each["task"]): {figure["figure"]: figure for figure in each["figures"]} for each in paired
    }
    scored = {name: task for name, task in tasks.items() if task.get("metrics")}
    groups = comparable(spec, list(scored))
    tables = [
        _comparison(
            "Comparison",
            {name: scored[name] for name in group},
            judged.get(tuple(group), {}),
            with_change=len(group) == 2,
            known=known_figures(spec, group[0], tasks[group[0]]["metrics"]),
        )
        for group in groups
    ]
    if len(groups) > 1:
        tables.append(_comparison("Side by side, on different data", scored, {}, with_change=False))
    return [table for table in tables if len(table.names) > 1 and table.rows]


def _comparison(
    heading: str,
    tasks: Mapping[str, Mapping[str, Any]],
    judged: Mapping[str, Mapping[str, Any]],
    *,
    with_change: bool,
    known: Mapping[str, Figure] = FIGURES,
) -> Comparison:
    """The common metrics of these score tasks, in the order of the first, then their shares of useless outputs."""
    scored = [{**task["metrics"], **{f"{_SHARE}{each.title}": each.share for each in useless_of(task)}} for task in tasks.values()]
    names = [name for name in scored[0] if all(name in metrics for metrics in scored[1:])]
    shown = [name for name in names if not name.startswith(_SHARE) or any(metrics[name] for metrics in scored)]
    notes = [words_of(task) for task in tasks.values()]
    rows = [
        _compared(name, [metrics[name] for metrics in scored], notes, judged.get(name), with_change=with_change, figure=known.get(name))
        for name in shown
    ]
    return Comparison(heading, list(tasks), rows, with_change, prompt_forms(tasks))


def _compared(
    metric: str,
    values: Sequence[float | None],
    notes: Sequence[str],
    judged: Mapping[str, Any] | None,
    *,
    with_change: bool,
    figure: Figure | None,
) -> Compared:
    beside = notes if qualified(metric) and not metric.startswith(_SHARE) else [""] * len(values)
    shown = [Value(value_text(metric, value), note) for value, note in zip(values, beside, strict=True)]
    first, last = values[0], values[-1]
    if not with_change or first is None or last is None:
        return Compared(title_of(metric), shown)
    better = _better(metric, figure, first, last) if judged is None else judged["better"] if judged["real"] else None
    said = verdict(judged) if judged is not None else "" if better is None else "better" if better else "worse"
    sign = "+" if last > first else "−" if last < first else "±"
    relative = f"{sign}{percent(abs(last / first - 1))}" if first else ""
    return Compared(title_of(metric), shown, f"{sign}{number(abs(last - first))}", relative, said, better)


def _better(metric: str, figure: Figure | None, first: float, last: float) -> bool | None:
    higher = figure.higher_is_better if figure is not None else False if metric.startswith(_SHARE) else None
    return None if first == last or higher is None else (last > first) == higher
