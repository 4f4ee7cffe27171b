"""Key figures of a task, as tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.catalog.gpu_facts import OF_PEAK
from tuneyard.tracking.formats import duration, number, percent, rate
from tuneyard.tracking.pairwise import pairwise_words
from tuneyard.tracking.report_parts.curves import evaluations_of, figures_over_steps, held_out, last, shown
from tuneyard.tracking.report_parts.memory import memory_of
from tuneyard.tracking.useless import useless_of

_MOST_FIGURES = 2
"""Tiles of figures of held-out rows beside the loss."""


@dataclass(frozen=True)
class Tile:
    """A key figure."""

    name: str
    value: str
    note: str = ""


def train_tiles(task: Mapping[str, Any]) -> list[Tile | None]:
    losses = task.get("losses") or []
    evaluations = evaluations_of(task)
    memory = memory_of(task)
    plan = task.get("plan") or {}
    if task.get("status") == "pending":
        return []
    since = f"from {number(evaluations[0][1], 4)}" if len(evaluations) > 1 else ""
    steps = task.get("steps", (task.get("progress") or {}).get("step"))
    return [
        Tile("training loss", number(losses[-1], 4), f"from {number(losses[0], 4)}") if losses else None,
        Tile("evaluation loss", number(evaluations[-1][1], 4), since) if evaluations else None,
        *_figure_tiles(task),
        _rate_tile(task),
        mfu_tile(task, task.get("mfu", last(task, "mfu"))),
        Tile("peak memory", memory.shown, memory.note) if memory is not None else None,
        Tile("steps", number(steps), f"resumed from {task['resumed_from']}" if task.get("resumed_from") else "") if steps else None,
        Tile("workers", number(task.get("world_size") or plan.get("workers", 1)), _layout(plan)),
        wall_tile(task),
    ]


def score_tiles(task: Mapping[str, Any]) -> list[Tile | None]:
    latency = task.get("latency_s") or {}
    progress = task.get("progress") or {}
    rows = task.get("rows", progress.get("rows"))
    resumed = task.get("rows_resumed")
    useless = useless_of(task)
    if rows is None:
        return []
    return [
        Tile("rows", number(rows), f"{number(resumed)} from an earlier attempt" if resumed else ""),
        Tile("errors", number(task.get("errors", progress.get("errors", 0)))),
        *[Tile(each.title, number(each.count), f"{percent(each.share)} of all") for each in useless if each.count],
        *_pairwise(task),
        _scoring_rate(task, progress),
        mfu_tile(task, task["mfu"]) if task.get("mfu") is not None else None,
        _cost(task),
        *[Tile(f"latency {name}", duration(latency[name])) for name in ("p50", "p90", "p99") if latency.get(name) is not None],
        wall_tile(task),
    ]


def other_tiles(task: Mapping[str, Any]) -> list[Tile | None]:
    return [wall_tile(task)]


def wall_tile(task: Mapping[str, Any]) -> Tile | None:
    return Tile("wall time", duration(task.get("wall_s"))) if task.get("wall_s") else None


def mfu_tile(task: Mapping[str, Any], share: float | None) -> Tile:
    return Tile("MFU", percent(share), OF_PEAK.get(task.get("peak_from", ""), ""))


def _figure_tiles(task: Mapping[str, Any]) -> list[Tile]:
    """Tiles of figures of held-out rows."""
    found = [(shown(name), held_out(task, name)) for name in figures_over_steps(task)[:_MOST_FIGURES]]
    return [
        Tile(name, number(points[-1][1], 4), f"from {number(points[0][1], 4)}" if len(points) > 1 else "")
        for name, points in found
        if points
    ]


def _rate_tile(task: Mapping[str, Any]) -> Tile:
    """Tokens per second, or rows per second of a program."""
    rows = (task.get("details") or {}).get("rows_per_s") or last(task, "rows_per_s")
    return Tile("rows/s", rate(rows)) if rows else Tile("tokens/s", rate(task.get("tokens_per_s", last(task, "tokens_per_s"))))


def _scoring_rate(task: Mapping[str, Any], progress: Mapping[str, Any]) -> Tile:
    """Rows per second of a ranker, tokens per second of a language model."""
    known = {**progress, **task}
    if "rows_per_s" in known:
        return Tile("rows/s", rate(known["rows_per_s"]))
    return Tile("output tokens/s", rate(known.get("output_tokens_per_s")))


def _pairwise(task: Mapping[str, Any]) -> list[Tile]:
    """Tiles of a judge that has compared pairs of answers."""
    return [Tile(*each) for each in pairwise_words(task)]


def _cost(task: Mapping[str, Any]) -> Tile | None:
    """The cost of a score task; None where no price is known."""
    if task.get("cost") is None:
        return None
    per_1000 = task.get("cost_per_1000_rows")
    return Tile("cost", _money(task["cost"]), f"{_money(per_1000)} per 1,000 rows" if per_1000 is not None else "")


def _money(value: float) -> str:
    """Cents, or three digits of smaller amounts."""
    return f"{value:,.2f}" if value >= 1 else f"{value:.3g}"


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
