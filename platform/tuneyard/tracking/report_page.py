"""A Report as one HTML page, which contains its styles, charts and data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from tuneyard.metrics import FIGURES
from tuneyard.tracking.charts import Bar, Chart, Line, Part, bar_chart, line_chart, share_bar
from tuneyard.tracking.comparing import comparable, prompt_forms
from tuneyard.tracking.data_charts import data_charts
from tuneyard.tracking.formats import duration, gigabytes, number, percent
from tuneyard.tracking.heat_map import heat_map
from tuneyard.tracking.judged_rows import slice_rows, window_charts
from tuneyard.tracking.paired_rows import paired_views
from tuneyard.tracking.remarks import remarks_of
from tuneyard.tracking.report import Report, json_safe

MOST_RANKS = 16
MOST_SAMPLES = 8
MOST_CHARACTERS = 4_000
_USELESS = {
    "empty": "empty outputs",
    "looping": "outputs that end in a loop",
    "cut_off": "outputs that were cut off",
    "off_schema": "outputs that do not follow the schema",
}
_PEAKS = {"measured": "of the measured peak", "given": "of a peak that was given by hand"}
_TWICE_THE_MEAN = 2.0
_SHARE = "share of "
_SPLIT = ("data", "forward", "backward", "optimizer", "checkpoint", "other", "evaluation")
_MEMORY = ("weights", "gradients", "optimizer", "optimizer_step", "activations", "libraries", "other")


@dataclass(frozen=True)
class Tile:
    """A key figure."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Sample:
    """A row that was scored: its answer, or why there is none."""

    title: str
    prompt: str
    answer: str
    reference: str
    failed: bool


@dataclass(frozen=True)
class Compared:
    """One metric of several score tasks. `change` and `better` are of the last against the first, where there are two on the same data."""

    metric: str
    values: list[str]
    change: str
    relative: str
    better: bool | None


@dataclass(frozen=True)
class Comparison:
    """A table of score tasks side by side. `with_change`: they are two, on the same data."""

    title: str
    names: list[str]
    rows: list[Compared]
    with_change: bool
    note: str


def render(report: Report) -> str:
    """The page as HTML. All texts of people are escaped."""
    tasks = {name: json_safe(task) for name, task in report.tasks.items()}
    return _template().render(
        report=report,
        wall=duration(report.wall_s) if report.wall_s else "",
        spec=yaml.safe_dump(json_safe(report.spec), sort_keys=False, allow_unicode=True) if report.spec else "",
        tasks=[task_view(name, task) for name, task in tasks.items()],
        comparisons=_comparisons(report.spec, tasks),
        paired=paired_views(json_safe(report.comparisons)),
    )


@cache
def _template() -> Template:
    environment = Environment(loader=PackageLoader("tuneyard.tracking"), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template("report.html")


def task_view(name: str, task: Mapping[str, Any]) -> dict[str, Any]:
    """Figures, drawings and tables of a task of report.json, for the pages that show it."""
    kind = task.get("kind")
    tiles = {"train": _train_tiles, "rank": _train_tiles, "score": _score_tiles, "tune": _tune_tiles}.get(str(kind), _other_tiles)(task)
    charts = {"train": _train_charts, "rank": _train_charts, "tune": _tune_charts, "score": window_charts}.get(str(kind), lambda _: [])(
        task
    )
    return {
        "name": name,
        "kind": task.get("kind", ""),
        "status": task.get("status", ""),
        "failure": task.get("failure", ""),
        "message": task.get("message", ""),
        "tiles": [tile for tile in tiles if tile],
        "charts": [chart for chart in charts if chart.drawing],
        "remarks": remarks_of(task),
        "trials": _trials(task),
        "effects": _effects(task),
        "metrics": _figures(task),
        "slices": slice_rows(task),
        "samples": [_sample(row) for row in (task.get("samples") or [])[:MOST_SAMPLES]],
        "warnings": task.get("warnings", []),
        "artifacts": _artifacts(task),
        "progress": _progress(task),
    }


def _figures(task: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Title, value and bounds at 95 % confidence of each figure of a score task."""
    intervals = task.get("intervals") or {}
    return [
        (_title(name), _figure(name, value), " – ".join(_figure(name, bound) for bound in intervals.get(name) or ()))
        for name, value in (task.get("metrics") or {}).items()
    ]


def _title(name: str) -> str:
    """The title of a metric. An unknown name stays as it is: reports outlive versions."""
    return FIGURES[name].title if name in FIGURES else name


def _figure(name: str, value: float | None) -> str:
    return FIGURES[name].text(value) if name in FIGURES else number(value, 4)


def _progress(task: Mapping[str, Any]) -> float | None:
    """Share done of a running task, in percent."""
    progress = task.get("progress") or {}
    done, of = next((progress[noun] for noun in ("step", "rows", "trial") if noun in progress), 0), progress.get("of", 0)
    return round(100 * done / of, 1) if task.get("status") == "running" and of else None


def _last(task: Mapping[str, Any], column: str) -> Any:
    values = (task.get("series") or {}).get(column) or [None]
    return values[-1]


def _train_tiles(task: Mapping[str, Any]) -> list[Tile | None]:
    losses = task.get("losses") or []
    evaluations = _evaluations(task)
    peak = _peaks(task)
    plan = task.get("plan") or {}
    if task.get("status") == "pending":
        return []
    since = f"from {number(evaluations[0][1], 4)}" if len(evaluations) > 1 else ""
    steps = task.get("steps", (task.get("progress") or {}).get("step"))
    return [
        Tile("training loss", number(losses[-1], 4), f"from {number(losses[0], 4)}") if losses else None,
        Tile("evaluation loss", number(evaluations[-1][1], 4), since) if evaluations else None,
        *_entropy_tiles(task),
        _rate_tile(task),
        Tile("MFU", percent(task.get("mfu", _last(task, "mfu"))), _PEAKS.get(task.get("peak_from", ""), "")),
        Tile("peak memory", gigabytes(max(peak)), f"of one rank; planned {gigabytes(_planned(task))}") if peak else None,
        Tile("steps", number(steps), f"resumed from {task['resumed_from']}" if task.get("resumed_from") else "") if steps else None,
        Tile("workers", number(task.get("world_size") or plan.get("workers", 1)), _layout(plan)),
        Tile("wall time", duration(task.get("wall_s"))) if task.get("wall_s") else None,
    ]


def _entropy_tiles(task: Mapping[str, Any]) -> list[Tile]:
    """Tiles of a ranker's held-out rows."""
    found = [each["normalised_entropy"] for each in task.get("figures") or [] if each.get("normalised_entropy") is not None]
    return [Tile("normalised entropy", number(found[-1], 4), f"from {number(found[0], 4)}" if len(found) > 1 else "")] if found else []


def _entropy_charts(task: Mapping[str, Any]) -> list[Chart]:
    points = [(each["step"], each.get("normalised_entropy")) for each in task.get("figures") or []]
    known = [(float(step), float(value)) for step, value in points if value is not None]
    line = Line("held-out rows", known, "c2", dots=True)
    drawn = line_chart([line], title="Normalised entropy over steps", from_zero=False, value_label=lambda v: number(v, 4))
    return [Chart("Normalised entropy of held-out rows", drawn, [])] if known else []


def _rate_tile(task: Mapping[str, Any]) -> Tile:
    """Tokens per second, or rows per second of a program."""
    rows = (task.get("details") or {}).get("rows_per_s") or _last(task, "rows_per_s")
    return Tile("rows/s", number(rows)) if rows else Tile("tokens/s", number(task.get("tokens_per_s", _last(task, "tokens_per_s"))))


def _rate_chart(task: Mapping[str, Any]) -> Chart:
    unit = "rows" if _last(task, "rows_per_s") else "tokens"
    lines = [Line(f"{unit}/s", _over_steps(task, f"{unit}_per_s"))]
    return Chart(f"{unit.capitalize()}/s", line_chart(lines, title=f"{unit.capitalize()} per second", from_zero=True), [])


def _layout(plan: Mapping[str, Any]) -> str:
    if not plan:
        return ""
    tensor, split = plan.get("tensor_parallel", 1), plan.get("context_parallel", 1)
    zero = f"ZeRO {plan.get('zero', 0)}" + (" inside hosts" if plan.get("shard_within") == "host" else "")
    parts = [plan.get("sku", ""), zero, plan.get("precision", "")]
    parts += [f"weights over {tensor} ranks"] if tensor > 1 else []
    parts += [f"rows over {split} ranks"] if split > 1 else []
    reduced = plan.get("quantised_all_reduce", "none")
    parts += [f"gradients in {reduced}"] if reduced != "none" else []
    return " · ".join(parts)


def _score_tiles(task: Mapping[str, Any]) -> list[Tile | None]:
    latency = task.get("latency_s") or {}
    progress = task.get("progress") or {}
    rows = task.get("rows", progress.get("rows"))
    resumed = task.get("rows_resumed")
    if rows is None:
        return []
    return [
        Tile("rows", number(rows), f"{number(resumed)} from an earlier attempt" if resumed else ""),
        Tile("errors", number(task.get("errors", progress.get("errors", 0)))),
        *[Tile(label, number(task[key]), f"{percent(task[key] / rows)} of all") for key, label in _USELESS.items() if task.get(key)],
        _scoring_rate(task, progress),
        Tile("MFU", percent(task["mfu"]), _PEAKS.get(task.get("peak_from", ""), "")) if task.get("mfu") is not None else None,
        _cost(task),
        *[Tile(f"latency {name}", duration(latency[name])) for name in ("p50", "p90", "p99") if latency.get(name) is not None],
        Tile("wall time", duration(task.get("wall_s"))) if task.get("wall_s") else None,
    ]


def _cost(task: Mapping[str, Any]) -> Tile | None:
    """The cost of a score task; None where no price is known."""
    if task.get("cost") is None:
        return None
    per_1000 = task.get("cost_per_1000_rows")
    return Tile("cost", _money(task["cost"]), f"{_money(per_1000)} per 1,000 rows" if per_1000 is not None else "")


def _money(value: float) -> str:
    """Cents, or three digits of smaller amounts."""
    return f"{value:,.2f}" if value >= 1 else f"{value:.3g}"


def _scoring_rate(task: Mapping[str, Any], progress: Mapping[str, Any]) -> Tile:
    """Rows per second of a ranker, tokens per second of a language model."""
    known = {**progress, **task}
    if "rows_per_s" in known:
        return Tile("rows/s", number(known["rows_per_s"]))
    return Tile("output tokens/s", number(known.get("output_tokens_per_s")))


def _other_tiles(task: Mapping[str, Any]) -> list[Tile | None]:
    return [Tile("wall time", duration(task.get("wall_s"))) if task.get("wall_s") else None]


def _peaks(task: Mapping[str, Any]) -> list[float]:
    peak = task.get("peak_memory_gb")
    if isinstance(peak, int | float):
        return [float(peak)]
    seen = [value for value in (task.get("series") or {}).get("memory_gb", []) if value is not None]
    return [value for value in peak if value is not None] if peak else [max(seen)] if seen else []


def _planned(task: Mapping[str, Any]) -> float | None:
    return task.get("planned_memory_gb") or ((task.get("plan") or {}).get("memory") or {}).get("total_gb")


def _evaluations(task: Mapping[str, Any]) -> list[tuple[float, float]]:
    return [(step, loss) for step, loss in task.get("eval_losses") or task.get("evaluations") or [] if loss is not None]


def _over_steps(task: Mapping[str, Any], column: str) -> list[tuple[float, float]]:
    series = task.get("series") or {}
    if series.get(column):
        return [(step, value) for step, value in zip(series["step"], series[column], strict=False) if value is not None]
    if column == "loss":
        first = (task.get("resumed_from") or 0) + 1
        return [(first + index, loss) for index, loss in enumerate(task.get("losses") or []) if loss is not None]
    return []


def _tune_tiles(task: Mapping[str, Any]) -> list[Tile | None]:
    if "gain" not in task:
        return _other_tiles(task)
    tried, pairs = task.get("trials") or [], task.get("ratios") or []
    failed = sum(1 for trial in tried if trial.get("failure"))
    what = "cheaper" if task.get("objective") == "cost" else "faster"
    return [
        Tile(f"{what} than the file's settings", f"{task['gain']:+.1%}" if task["gain"] > 0 else "nothing", _pairs_note(pairs)),
        Tile("winner", _settings(task.get("best") or {}) if task["gain"] > 0 else "the file's settings"),
        Tile("trials", number(len(tried)), f"{failed} failed" if failed else ""),
        Tile("wall time", duration(task.get("wall_s"))) if task.get("wall_s") else None,
    ]


def _pairs_note(ratios: Sequence[float]) -> str:
    return f"pairs: {', '.join(f'{ratio:.2f}x' for ratio in ratios)}" if ratios else ""


def _tune_charts(task: Mapping[str, Any]) -> list[Chart]:
    tried = task.get("trials") or []
    bars = [
        Bar(f"trial {trial['number']}", [Part(_settings(trial["point"]), trial["ratio"], "c1")]) for trial in tried if trial.get("ratio")
    ]
    drawing = bar_chart(bars, title="Trials beside the file's settings", value_label=lambda ratio: f"{ratio:.2f}x", limit=1.0)
    return [Chart("Speed over the file's settings, in the same round", drawing, [])]


def _trials(task: Mapping[str, Any]) -> list[dict[str, str]]:
    """Trials of a search as cells, the best first."""
    found = sorted(task.get("trials") or [], key=lambda trial: -(trial.get("ratio") or 0.0))
    return [
        {
            "number": number(trial["number"]),
            "settings": _settings(trial["point"]),
            "predicted": number(trial.get("predicted")) if trial.get("predicted") else "",
            "measured": number(trial["tokens_per_s"]) if trial.get("tokens_per_s") else trial.get("failure", ""),
            "ratio": f"{trial['ratio']:.2f}" if trial.get("ratio") else "",
            "message": trial.get("message", ""),
        }
        for trial in found
    ]


def _effects(task: Mapping[str, Any]) -> list[dict[str, str]]:
    return [
        {
            "setting": f"{each['setting']} {json.dumps(each['value'])}",
            "ratio": f"{each['ratio']:.2f}" if each["ratio"] else "",
            "trials": number(each["trials"]),
            "failed": number(each["failed"]) if each["failed"] else "",
        }
        for each in task.get("effects") or []
    ]


def _settings(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {json.dumps(value)}" for name, value in point.items())


def _train_charts(task: Mapping[str, Any]) -> list[Chart]:
    evaluations = _evaluations(task)
    loss = [Line("training", _over_steps(task, "loss")), Line("evaluation", evaluations, "c2", dots=True)]
    legend = [("training", "c1", ""), ("evaluation", "c2", "")] if evaluations else []
    return [
        Chart("Loss", line_chart(loss, title="Loss over steps", from_zero=False, value_label=lambda v: number(v, 4)), legend),
        *_entropy_charts(task),
        _rate_chart(task),
        Chart("MFU, %", _mfu_chart(task), []),
        _memory_chart(task),
        _split_chart(task),
        *_expert_charts(task),
        *data_charts(task),
    ]


def _expert_charts(task: Mapping[str, Any]) -> list[Chart]:
    """Charts of mixtures of experts."""
    load = ((task.get("details") or {}).get("experts") or {}).get("load") or []
    router = line_chart([Line("router loss", _over_steps(task, "router_loss"))], title="Router loss", from_zero=False)
    busiest = line_chart([Line("load", _over_steps(task, "busiest_expert"))], title="Busiest expert", from_zero=True, value_label=_times)
    shares = heat_map(
        load, title="Load of experts by layer", row_name="layer", column_name="expert", value_label=_times, darkest=_TWICE_THE_MEAN
    )
    return [
        Chart("Router loss, before its weight", router, []),
        Chart("Busiest expert, times the mean load", busiest, []),
        Chart("Load of experts in the last steps (full: twice the mean or more)", shares, []),
    ]


def _times(value: float) -> str:
    return f"{value:.2f}x"


def _mfu_chart(task: Mapping[str, Any]) -> Markup:
    points = [(step, 100 * share) for step, share in _over_steps(task, "mfu")]
    return line_chart([Line("MFU", points)], title="Model FLOPs utilisation", from_zero=True, value_label=lambda v: percent(v / 100))


def _memory_chart(task: Mapping[str, Any]) -> Chart:
    peaks = _peaks(task)
    planned = {name: (((task.get("plan") or {}).get("memory") or {}).get(f"{name}_gb") or 0.0) for name in _MEMORY}
    bars, legend = [], []
    if sum(planned.values()) > 0:
        parts = [Part(name, planned[name], f"p{index + 1}") for index, name in enumerate(_MEMORY)]
        bars.append(Bar("planned", parts))
        legend = [(part.name, part.style, gigabytes(part.value)) for part in parts if part.value > 0]
    elif task.get("planned_memory_gb"):
        bars.append(Bar("planned", [Part("planned", task["planned_memory_gb"], "p6")]))
    bars += [Bar(f"rank {rank}", [Part("peak", peak, "c1")]) for rank, peak in enumerate(peaks[:MOST_RANKS])]
    if len(peaks) > MOST_RANKS:
        bars.append(Bar(f"{len(peaks)} ranks", [Part("largest peak", max(peaks), "c1")]))
    return Chart("Memory per rank, planned and measured", bar_chart(bars, title="Memory per rank", value_label=gigabytes), legend)


def _split_chart(task: Mapping[str, Any]) -> Chart:
    split = task.get("split") or {}
    seconds = {name: split.get(f"{name}_s", split.get(name)) or 0.0 for name in _SPLIT}
    total = sum(seconds.values())
    parts = [Part(name, seconds[name], f"p{index + 1}") for index, name in enumerate(_SPLIT)]
    legend = [(part.name, part.style, percent(part.value / total)) for part in parts] if total > 0 else []
    return Chart("Where the time went", share_bar(parts, title="Time of all steps by kind of work", value_label=duration), legend)


def _sample(row: Mapping[str, Any]) -> Sample:
    prompt, error = row.get("prompt"), row.get("error")
    if isinstance(prompt, list):
        prompt = "\n".join(f"{turn.get('role', '')}: {turn.get('content', '')}" if isinstance(turn, dict) else str(turn) for turn in prompt)
    place = f"row {row['row']}" if "row" in row else ""
    title = f"a typical answer, {place}" if row.get("typical") else place
    return Sample(title, _text(prompt), _text(error or row.get("output")), _text(row.get("reference")), bool(error))


def _text(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({len(text):,} characters)"


def _artifacts(task: Mapping[str, Any]) -> list[tuple[str, str]]:
    artifacts = task.get("artifacts") or {}
    if isinstance(artifacts, dict):
        return [(str(name), value if isinstance(value, str) else json.dumps(value)) for name, value in artifacts.items() if value]
    return [("artifact", str(uri)) for uri in artifacts]


def _comparisons(spec: Mapping[str, Any] | None, tasks: Mapping[str, Mapping[str, Any]]) -> list[Comparison]:
    """A table for each group of score tasks on the same data; for other score tasks one table of all, without changes."""
    scored = {name: task for name, task in tasks.items() if task.get("metrics")}
    groups = comparable(spec, list(scored))
    tables = [_comparison("Comparison", {name: scored[name] for name in group}, with_change=len(group) == 2) for group in groups]
    if len(groups) > 1:
        tables.append(_comparison("Side by side, on different data", scored, with_change=False))
    return [table for table in tables if len(table.names) > 1 and table.rows]


def _comparison(title: str, tasks: Mapping[str, Mapping[str, Any]], *, with_change: bool) -> Comparison:
    """The common metrics of these score tasks, in the order of the first, then their shares of useless outputs."""
    scored = [{**task["metrics"], **_useless(task)} for task in tasks.values()]
    names = [name for name in scored[0] if all(name in metrics for metrics in scored[1:])]
    shown = [name for name in names if not name.startswith(_SHARE) or any(metrics[name] for metrics in scored)]
    rows = [_compared(name, [metrics[name] for metrics in scored], with_change=with_change) for name in shown]
    return Comparison(title, list(tasks), rows, with_change, prompt_forms(tasks))


def _useless(task: Mapping[str, Any]) -> dict[str, float]:
    """Share of all rows by kind of useless output; empty for a task that did not count them."""
    rows = task.get("rows")
    return {f"{_SHARE}{label}": task[key] / rows for key, label in _USELESS.items() if task.get(key) is not None and rows}


def _compared(metric: str, values: list[float | None], *, with_change: bool) -> Compared:
    shown = [_figure(metric, value) for value in values]
    first, last = values[0], values[-1]
    if not with_change or first is None or last is None:
        return Compared(_title(metric), shown, "", "", None)
    figure = FIGURES.get(metric)
    higher = figure.higher_is_better if figure is not None else False if metric.startswith(_SHARE) else None
    better = None if first == last or higher is None else (last > first) == higher
    sign = "+" if last > first else "−" if last < first else "±"
    relative = f"{sign}{percent(abs(last / first - 1))}" if first else ""
    return Compared(_title(metric), shown, f"{sign}{number(abs(last - first))}", relative, better)
