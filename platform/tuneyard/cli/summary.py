"""The figures of a finished job, for people: a table of train and rank tasks, and a table of score tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuneyard.catalog.gpu_facts import OF_PEAK
from tuneyard.cli.output import print_table
from tuneyard.metrics import FIGURES
from tuneyard.tracking import Report, comparable, prompt_forms, remarks_of
from tuneyard.tracking.formats import percent, rate
from tuneyard.tracking.paired_rows import sentence, verdict
from tuneyard.tracking.pairwise import pairwise_words
from tuneyard.tracking.progress.words import clock
from tuneyard.tracking.useless import KINDS, useless_of, words_of

_RIGHT = ("tokens_per_s", "output_tokens_per_s", "rows_per_s", "MFU", "cost", "per_1000_rows", "time")


def print_summary(report: Report) -> None:
    """Print the tables on stdout. Tasks without figures have no row."""
    trained = [_trained(name, task) for name, task in report.tasks.items() if task.get("kind") in ("train", "rank") and task.get("losses")]
    scored = {name: task for name, task in report.tasks.items() if task.get("kind") == "score" and task.get("metrics") is not None}
    if trained:
        print_table(["trained", "steps", "loss", "tokens_per_s", "MFU", "peak_GB", "time"], trained, right=_RIGHT)
    if trained and scored:
        print()
    if scored:
        metrics = list(dict.fromkeys(metric for task in scored.values() for metric in task["metrics"] if "/" not in metric))
        rows = [_scored(name, task, metrics) for name, task in scored.items()]
        useless = [name for name in KINDS if any(task.get(name) for task in scored.values())]
        rates = [name for name in ("output_tokens_per_s", "rows_per_s") if any(name in task for task in scored.values())]
        cost = [name for name in ("cost", "per_1000_rows") if any(row[name] is not None for row in rows)]
        print_table(["scored", "rows", "errors", *useless, *metrics, *rates, "MFU", *cost, "time"], rows, right=_RIGHT)
    if of_harness := _of_harness(scored):
        print()
        print_table(["figure", *scored], of_harness, right=scored)
    for group in comparable(report.spec, list(scored)):
        same_rows = {name: scored[name] for name in group}
        for line in [*comparisons(same_rows, report.comparisons), *filter(None, [prompt_forms(same_rows)])]:
            print(line)
    for name, task in scored.items():
        if words := pairwise_words(task):
            print(f"{name}: {'; '.join(f'{title} {value} ({note})' for title, value, note in words)}")
    for comparison in report.comparisons:
        print(sentence(comparison))
    for name, task in report.tasks.items():
        for remark in remarks_of(task, also_expected=False):
            print(f"{name}: {remark}")
    for basis, of_peak in OF_PEAK.items():
        if any(task.get("peak_from") == basis for task in report.tasks.values()):
            print(f"MFU is {of_peak}")


def _of_harness(scored: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each figure of lm-evaluation-harness: one task has up to some hundred of them."""
    names = dict.fromkeys(metric for task in scored.values() for metric in task["metrics"] if "/" in metric)
    return [
        {"figure": name, **{task: _text(name, told["metrics"][name]) for task, told in scored.items() if name in told["metrics"]}}
        for name in names
    ]


def comparisons(scored: Mapping[str, Mapping[str, Any]], paired: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """The change of each metric from the first score task to each other one: `tuned against base: perplexity 41.2 -> 18.7 (-55%, better)`.

    `paired`: comparisons of their rows, whose verdict stands behind the change.
    """
    names = list(scored)
    said = {(each["task"], each["against"], figure["figure"]): verdict(figure) for each in paired for figure in each["figures"]}
    lines = []
    for name in names[1:]:
        first, other = scored[names[0]]["metrics"], scored[name]["metrics"]
        parts = [
            f"{metric} {_text(metric, first[metric])} -> {_text(metric, other[metric])}"
            f"{_change(first[metric], other[metric], said.get((name, names[0], metric), ''))}"
            for metric in first
            if metric in other and "/" not in metric  # those of lm-evaluation-harness stand side by side in their own table
        ]
        if parts:
            lines.append(f"{name} against {names[0]}: {', '.join(parts)}{_useless(names[0], scored[names[0]], name, scored[name])}")
    return lines


def _useless(first: str, before: Mapping[str, Any], other: str, after: Mapping[str, Any]) -> str:
    """`; outputs: base 240 empty of 300, tuned none of 300 empty, looping or cut off`; empty where neither has any."""
    if not any(each.count for task in (before, after) for each in useless_of(task)):
        return ""
    return f"; outputs: {first} {words_of(before) or 'not counted'}, {other} {words_of(after) or 'not counted'}"


def _text(metric: str, value: float) -> str:
    return FIGURES[metric].text(value) if metric in FIGURES else f"{value:.4g}"


def _change(before: float, after: float, verdict: str) -> str:
    notes = [*([f"{(after - before) / before:+.0%}"] if before else []), *([verdict] if verdict else [])]
    return f" ({', '.join(notes)})" if notes else ""


def _trained(name: str, task: Mapping[str, Any]) -> dict[str, Any]:
    losses = task["losses"]
    rows_per_s = (task.get("details") or {}).get("rows_per_s")  # of a program, which has no tokens
    peak = task.get("peak_memory_gb")
    return {
        "trained": name,
        "steps": task.get("steps", len(losses)),
        "loss": f"{losses[0]:.3f} -> {losses[-1]:.3f}",
        "tokens_per_s": _said(rate, task.get("tokens_per_s")) if rows_per_s is None else f"{rate(rows_per_s)} rows/s",
        "MFU": _said(percent, task.get("mfu")),
        "peak_GB": round(max(peak), 2) if isinstance(peak, list) and peak else peak,
        "time": clock(task.get("wall_s", 0.0)),
    }


def _scored(name: str, task: Mapping[str, Any], metrics: list[str]) -> dict[str, Any]:
    return {
        "scored": name,
        "rows": task.get("rows"),
        "errors": task.get("errors"),
        **{name: task.get(name) for name in KINDS},
        **{metric: task["metrics"].get(metric) for metric in metrics},
        "output_tokens_per_s": _said(rate, task.get("output_tokens_per_s")),
        "rows_per_s": _said(rate, task.get("rows_per_s")),
        "MFU": _said(percent, task.get("mfu")),
        "cost": _money(task.get("cost")),
        "per_1000_rows": _money(task.get("cost_per_1000_rows")),
        "time": clock(task.get("wall_s", 0.0)),
    }


def _money(value: float | None) -> str | None:
    """Cents, or three digits of smaller amounts."""
    return None if value is None else f"{value:,.2f}" if value >= 1 else f"{value:.3g}"


def _said(text: Callable[[float], str], value: float | None) -> str | None:
    return None if value is None else text(value)
