"""Charts of a train or rank task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from tuneyard.tracking.charts import Chart, Line, Part, line_chart, share_bar
from tuneyard.tracking.data_charts import data_charts
from tuneyard.tracking.formats import duration, number, percent
from tuneyard.tracking.heat_map import heat_map
from tuneyard.tracking.report_parts.curves import evaluations_of, figures_over_steps, held_out, last, over_steps, shown
from tuneyard.tracking.report_parts.machine_charts import machine_charts
from tuneyard.tracking.report_parts.memory import memory_chart

_TWICE_THE_MEAN = 2.0
_SPLIT = ("data", "forward", "backward", "optimizer", "checkpoint", "other", "evaluation")


def train_charts(task: Mapping[str, Any]) -> list[Chart]:
    evaluations = evaluations_of(task)
    loss = [Line("training", over_steps(task, "loss")), Line("evaluation", evaluations, "c2", dots=True)]
    legend = [("training", "c1", ""), ("evaluation", "c2", "")] if evaluations else []
    return [
        Chart("Loss", line_chart(loss, title="Loss over steps", from_zero=False, value_label=lambda v: number(v, 4)), legend),
        *_figure_charts(task),
        *_reward_charts(task),
        _rate_chart(task),
        Chart("MFU, %", _mfu_chart(task), []),
        memory_chart(task),
        _split_chart(task),
        *machine_charts(task),
        *_expert_charts(task),
        *data_charts(task),
    ]


def _figure_charts(task: Mapping[str, Any]) -> list[Chart]:
    """A chart for each figure of held-out rows beside the loss."""
    charts = []
    for name in figures_over_steps(task):
        line, words = Line("held-out rows", held_out(task, name), "c2", dots=True), shown(name)
        words = words[:1].upper() + words[1:]
        drawn = line_chart([line], title=f"{words} over steps", from_zero=False, value_label=lambda v: number(v, 4))
        charts += [Chart(f"{words} of held-out rows", drawn, [])] if line.points else []
    return charts


def _reward_charts(task: Mapping[str, Any]) -> list[Chart]:
    """Charts of preference pairs."""
    margin, accuracy = over_steps(task, "rewards/margin"), over_steps(task, "rewards/accuracy")
    if not margin:
        return []
    drawn = line_chart([Line("margin", margin)], title="Reward margin over steps", from_zero=False, value_label=lambda v: number(v, 4))
    shares = line_chart([Line("accuracy", accuracy)], title="Reward accuracy over steps", from_zero=True, value_label=percent)
    return [
        Chart("Reward of the chosen answer less the rejected one's", drawn, []),
        Chart("Pairs with the chosen answer ahead", shares, []),
    ]


def _rate_chart(task: Mapping[str, Any]) -> Chart:
    unit = "rows" if last(task, "rows_per_s") else "tokens"
    lines = [Line(f"{unit}/s", over_steps(task, f"{unit}_per_s"))]
    return Chart(f"{unit.capitalize()}/s", line_chart(lines, title=f"{unit.capitalize()} per second", from_zero=True), [])


def _mfu_chart(task: Mapping[str, Any]) -> Markup:
    points = [(step, 100 * share) for step, share in over_steps(task, "mfu")]
    return line_chart([Line("MFU", points)], title="Model FLOPs utilisation", from_zero=True, value_label=lambda v: percent(v / 100))


def _expert_charts(task: Mapping[str, Any]) -> list[Chart]:
    """Charts of mixtures of experts."""
    load = ((task.get("details") or {}).get("experts") or {}).get("load") or []
    router = line_chart([Line("router loss", over_steps(task, "router_loss"))], title="Router loss", from_zero=False)
    busiest = line_chart([Line("load", over_steps(task, "busiest_expert"))], title="Busiest expert", from_zero=True, value_label=_times)
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


def _split_chart(task: Mapping[str, Any]) -> Chart:
    split = task.get("split") or {}
    seconds = {name: split.get(f"{name}_s", split.get(name)) or 0.0 for name in _SPLIT}
    total = sum(seconds.values())
    parts = [Part(name, seconds[name], f"p{index + 1}") for index, name in enumerate(_SPLIT)]
    legend = [(part.name, part.style, percent(part.value / total)) for part in parts] if total > 0 else []
    return Chart("Where the time went", share_bar(parts, title="Time of all steps by kind of work", value_label=duration), legend)
