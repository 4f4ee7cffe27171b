"""A ranker's figures by group of rows, for the report: a table of slices, and a chart of windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.tracking.charts import Chart, Line, line_chart
from tuneyard.tracking.formats import number

_MOST_ROWS = 200
_FIGURES = ("normalised_entropy", "auc", "calibration")


def slice_rows(task: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Column, value, rows and figures of each slice, of a score task and of the held-out rows of a rank task. With several labels, the
    label stands before the column."""
    judged = {label: each.get("slices") or {} for label, each in (task.get("judged") or {}).items()}
    found = judged or (task.get("details") or {}).get("slices") or {}
    rows = []
    for label, columns in found.items():
        for column, values in columns.items():
            name = f"{label}: {column}" if len(found) > 1 else column
            rows += [(name, value, number(of["rows"]), *(number(of.get(each), 4) for each in _FIGURES)) for value, of in values.items()]
    return rows[:_MOST_ROWS]


def window_charts(task: Mapping[str, Any]) -> list[Chart]:
    """Normalised entropy of each window, for each label."""
    charts = []
    for label, each in (task.get("judged") or {}).items():
        windows = each.get("windows") or []
        known = [(float(window["start"]), window["normalised_entropy"]) for window in windows if window["normalised_entropy"] is not None]
        if len(known) > 1:
            line = Line(label, known, "c2", dots=True)
            drawn = line_chart([line], title="Normalised entropy in windows", from_zero=False, value_label=lambda v: number(v, 4))
            charts.append(Chart(f"Normalised entropy of {label}, in windows of {number(each['window_width'])}", drawn, []))
    return charts
