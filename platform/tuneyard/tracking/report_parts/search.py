"""A search for settings: its winner, its trials, and the effect of each setting."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tuneyard.tracking.charts import Bar, Chart, Part, bar_chart
from tuneyard.tracking.formats import number
from tuneyard.tracking.report_parts.tiles import Tile, other_tiles, wall_tile


def tune_tiles(task: Mapping[str, Any]) -> list[Tile | None]:
    if "gain" not in task:
        return other_tiles(task)
    tried, pairs = task.get("trials") or [], task.get("ratios") or []
    failed = sum(1 for trial in tried if trial.get("failure"))
    what = "cheaper" if task.get("objective") == "cost" else "faster"
    return [
        Tile(f"{what} than the file's settings", f"{task['gain']:+.1%}" if task["gain"] > 0 else "nothing", _pairs_note(pairs)),
        Tile("winner", _settings(task.get("best") or {}) if task["gain"] > 0 else "the file's settings"),
        Tile("trials", number(len(tried)), f"{failed} failed" if failed else ""),
        wall_tile(task),
    ]


def tune_charts(task: Mapping[str, Any]) -> list[Chart]:
    tried = task.get("trials") or []
    bars = [
        Bar(f"trial {trial['number']}", [Part(_settings(trial["point"]), trial["ratio"], "c1")]) for trial in tried if trial.get("ratio")
    ]
    drawing = bar_chart(bars, title="Trials beside the file's settings", value_label=lambda ratio: f"{ratio:.2f}x", limit=1.0)
    return [Chart("Speed over the file's settings, in the same round", drawing, [])]


def trials_of(task: Mapping[str, Any]) -> list[dict[str, str]]:
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


def effects_of(task: Mapping[str, Any]) -> list[dict[str, str]]:
    """The effect of each setting as cells."""
    return [
        {
            "setting": f"{each['setting']} {json.dumps(each['value'])}",
            "ratio": f"{each['ratio']:.2f}" if each["ratio"] else "",
            "trials": number(each["trials"]),
            "failed": number(each["failed"]) if each["failed"] else "",
        }
        for each in task.get("effects") or []
    ]


def _pairs_note(ratios: Sequence[float]) -> str:
    return f"pairs: {', '.join(f'{ratio:.2f}x' for ratio in ratios)}" if ratios else ""


def _settings(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {json.dumps(value)}" for name, value in point.items())
