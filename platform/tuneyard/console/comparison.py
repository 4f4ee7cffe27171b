"""Two to six runs side by side: the settings that differ, curves on one axis, and figures with the better direction. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

from tuneyard.api.tasks import TASK_KINDS
from tuneyard.console import words
from tuneyard.metrics import FIGURES, Figure
from tuneyard.tracking.charts import Chart, Line, line_chart
from tuneyard.tracking.formats import MISSING, duration, gigabytes, number, percent, rate
from tuneyard.tracking.known_figures import known_figures

FEWEST, MOST = 2, 6
_LETTERS = "ABCDEF"
_HIDDEN = ("apiVersion", "kind", "metadata", "status")
_LONGEST_VALUE = 300
_FIELDS = re.compile(rf"^(?:{'|'.join(TASK_KINDS)})\.")


class Run(Protocol):
    """What a comparison shows of a run in a history."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def gpu_hours(self) -> float: ...


class Record(Protocol):
    """A run with its JobSpec, and its tasks as in report.json, by name."""

    @property
    def run(self) -> Run: ...

    @property
    def spec(self) -> Mapping[str, Any]: ...

    @property
    def tasks(self) -> Mapping[str, Mapping[str, Any]]: ...


@dataclass(frozen=True)
class Column:
    """A compared run. `letter`: its short name in curves; `style`: the CSS class of its lines."""

    letter: str
    style: str
    record: Record


@dataclass(frozen=True)
class Setting:
    """A setting of the JobSpec, or of the plan of a task's last attempt. A value is empty where a run does not set it."""

    path: str
    values: Sequence[str]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


@dataclass(frozen=True)
class FigureRow:
    """A figure of each run. `best`: the places of the best value, empty where all are equal, the direction is not known, or a comparison of
    rows finds no real difference. `verdict`: of that comparison, where there is one."""

    title: str
    better: str
    values: Sequence[str]
    best: frozenset[int]
    verdict: str = ""


def columns_of(records: Sequence[Record]) -> list[Column]:
    return [Column(_LETTERS[index], f"c{index + 1}", record) for index, record in enumerate(records)]


def side_by_side(records: Sequence[Record]) -> dict[str, Any]:
    """What compare.html shows of runs: columns, settings that differ and that are the same, charts, figures."""
    columns, settings = columns_of(records), settings_of(records)
    differing, same = [each for each in settings if each.differs], [each for each in settings if not each.differs]
    return {"columns": columns, "differing": differing, "same": same, "charts": charts_of(columns), "figures": figures_of(columns)}


def settings_of(records: Sequence[Record]) -> list[Setting]:
    """All settings by path, in the order of the first file that has them."""
    flat = [dict(_flat_run(record)) for record in records]
    paths = list(dict.fromkeys(path for each in flat for path in each))
    return [Setting(path, [each.get(path, "") for each in flat]) for path in paths]


def _flat_run(record: Record) -> Iterator[tuple[str, str]]:
    spec = {key: value for key, value in record.spec.items() if key not in _HIDDEN}
    yield from _flat("", spec.get("spec", spec))
    for name, task in record.tasks.items():
        plan = task.get("plan") or {}
        yield from _flat(f"{name}: plan", {k: v for k, v in plan.items() if k != "memory"} if isinstance(plan, Mapping) else plan)


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Leaves by path. A list of named things, as of tasks, is flattened by name."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{path}.{key}" if path else str(key), inner)
    elif isinstance(value, list) and value and all(isinstance(each, Mapping) and each.get("name") for each in value):
        for each in value:
            start = f"{each['name']}:" if path == "tasks" else f"{path}.{each['name']}"
            for inner, text in _flat("", {key: item for key, item in each.items() if key != "name"}):
                # The kind of the task is no part of the path: its fields have names of their own.
                yield f"{start} {_FIELDS.sub('', inner)}" if path == "tasks" else f"{start}.{inner}", text
    elif path:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        yield path, text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def charts_of(columns: Sequence[Column]) -> list[Chart]:
    """Curves of the train and rank tasks, one chart per measure, one line per run and task."""
    measures: list[tuple[str, Callable[[Mapping[str, Any]], list[tuple[float, float]]], bool, Callable[[float], str]]] = [
        ("Training loss", lambda task: _series(task, "loss"), False, lambda v: number(v, 4)),
        ("Evaluation loss", _evaluations, False, lambda v: number(v, 4)),
        ("Tokens/s", lambda task: _series(task, "tokens_per_s"), True, rate),
        ("MFU, %", lambda task: [(x, 100 * y) for x, y in _series(task, "mfu")], True, lambda v: percent(v / 100)),
        ("Memory of a rank, GB", lambda task: _series(task, "memory_gb"), True, gigabytes),
    ]
    found = []
    for title, points_of, from_zero, label in measures:
        lines = [
            Line(_line_name(column, name), points, column.style, dots=title.startswith("Evaluation"))
            for column in columns
            for name, task in column.record.tasks.items()
            if (points := points_of(task))
        ]
        if lines:
            legend = [(line.name, line.style, "") for line in lines]
            found.append(Chart(title, line_chart(lines, title=title, from_zero=from_zero, value_label=label), legend))
    return [chart for chart in found if chart.drawing]


def trends_of(runs: Sequence[Mapping[str, Any]], known: Mapping[str, Figure] = FIGURES) -> list[Chart]:
    """A curve per metric over runs, the oldest first (rows of `queries.scores_of`). Empty for fewer than two runs. `known`: the figures
    of the task."""
    found = []
    for metric in dict.fromkeys(name for run in runs for name in run["metrics"]):
        figure = known.get(metric)
        values = [(float(place), run["metrics"].get(metric)) for place, run in enumerate(runs, start=1)]
        points = [(place, float(value)) for place, value in values if isinstance(value, int | float)]
        if len(points) > 1:
            title = figure.title if figure is not None else metric
            better = "" if figure is None else ", higher is better" if figure.higher_is_better else ", lower is better"
            label = figure.text if figure is not None else _four
            line = Line(title, points, dots=True)
            drawn = line_chart([line], title=f"{title} over runs", from_zero=False, value_label=label, over="run")
            found.append(Chart(f"{title}{better}", drawn, []))
    return [chart for chart in found if chart.drawing]


def _line_name(column: Column, task: str) -> str:
    several = sum(1 for each in column.record.tasks.values() if each.get("series")) > 1
    return f"{column.letter} {column.record.run.name}{f' {task}' if several else ''}"


def _series(task: Mapping[str, Any], name: str) -> list[tuple[float, float]]:
    series = task.get("series") or {}
    pairs = zip(series.get("step") or [], series.get(name) or [], strict=False)
    return [(float(step), float(value)) for step, value in pairs if isinstance(value, int | float)]


def _evaluations(task: Mapping[str, Any]) -> list[tuple[float, float]]:
    found = task.get("eval_losses") or task.get("evaluations") or []
    return [(float(step), float(loss)) for step, loss in found if isinstance(loss, int | float)]


def figures_of(columns: Sequence[Column], paired: Mapping[str, tuple[str, bool]] = MappingProxyType({})) -> list[FigureRow]:
    """Figures of the runs, then of their tasks: rows that no run has are left out. `paired`: figure -> the verdict of a
    comparison row by row, and whether it names one of them as better."""
    rows = []
    for name in dict.fromkeys(name for column in columns for name in column.record.tasks):
        tasks = [column.record.tasks.get(name, {}) for column in columns]
        rows += [_row(f"{name}: {title}", [value(task) for task in tasks], higher, text) for title, value, higher, text in _TASK_FIGURES]
        known = [known_figures(column.record.spec, name, task.get("metrics") or ()) for column, task in zip(columns, tasks, strict=True)]
        for metric in dict.fromkeys(metric for task in tasks for metric in task.get("metrics") or {}):
            figure = next((figures[metric] for figures in known if metric in figures), None)
            values = [(task.get("metrics") or {}).get(metric) for task in tasks]
            higher = figure.higher_is_better if figure is not None else None
            text = figure.text if figure is not None else lambda value: number(value, 4)
            row = _row(f"{name}: {figure.title if figure is not None else metric}", values, higher, text)
            said, real = paired.get(metric, ("", True))
            rows.append(replace(row, verdict=said, best=row.best if real else frozenset()))
    hours = [column.record.run.gpu_hours for column in columns]
    rows.append(_row("GPU-hours", [each or None for each in hours], False, words.hours))
    return [row for row in rows if any(value != MISSING for value in row.values)]


def _row(title: str, values: Sequence[Any], higher: bool | None, text: Callable[[Any], str]) -> FigureRow:
    known = {index: float(value) for index, value in enumerate(values) if isinstance(value, int | float)}
    shown = [text(value) if index in known else MISSING for index, value in enumerate(values)]
    best: frozenset[int] = frozenset()
    if higher is not None and len({shown[index] for index in known}) > 1:
        top = (max if higher else min)(known, key=known.__getitem__)
        best = frozenset(index for index in known if shown[index] == shown[top])
    better = "" if higher is None else "higher is better" if higher else "lower is better"
    return FigureRow(title, better, shown, best)


def _last(values: Any) -> Any:
    return values[-1] if values else None


def _peak(task: Mapping[str, Any]) -> Any:
    peak = task.get("peak_memory_gb")
    seen = peak if isinstance(peak, list) else [peak]
    return max((value for value in seen if isinstance(value, int | float)), default=None)


def _four(value: float) -> str:
    return number(value, 4)


_TASK_FIGURES: tuple[tuple[str, Callable[[Mapping[str, Any]], Any], bool | None, Callable[[Any], str]], ...] = (
    ("last training loss", lambda task: _last(task.get("losses")), False, _four),
    ("evaluation loss", lambda task: _last([loss for _, loss in _evaluations(task)]), False, _four),
    ("tokens/s", lambda task: task.get("tokens_per_s"), True, rate),
    ("output tokens/s", lambda task: task.get("output_tokens_per_s"), True, rate),
    ("MFU", lambda task: task.get("mfu"), True, percent),
    ("peak memory of a rank", _peak, False, gigabytes),
    ("rows", lambda task: task.get("rows"), None, number),
    ("errors", lambda task: task.get("errors"), False, number),
    ("wall time", lambda task: task.get("wall_s"), False, duration),
)
