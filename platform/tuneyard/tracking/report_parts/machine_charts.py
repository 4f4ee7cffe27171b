"""Charts of what the machines of a train task did while it trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuneyard.tracking.charts import Chart, Line, line_chart
from tuneyard.tracking.formats import gigabytes, number, percent

_CHARTS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("gpu_utilization", "Busy GPUs", percent),
    ("cpu_share", "Busy processors", percent),
    ("network_sent_gb_per_s", "Sent by a machine, GB/s", number),
    ("disk_read_gb_per_s", "Read from disks, GB/s", number),
    ("gpu_memory_gb", "Memory of the fullest GPU", gigabytes),
    ("host_memory_gb", "Memory of a machine", gigabytes),
)
"""A figure, the title of its chart, and how a value is written."""


def machine_charts(task: Mapping[str, Any]) -> list[Chart]:
    """Each figure over steps: a line for the first machine, and one for the machine that differs most from it at the end. Figures that were
    0 throughout have no chart."""
    machines = [each for each in task.get("machines") or [] if isinstance(each, Mapping)]
    drawn = (_chart(machines, *each) for each in _CHARTS)
    return [chart for chart in drawn if chart is not None]


def _chart(machines: Sequence[Mapping[str, Any]], name: str, title: str, written: Callable[[float], str]) -> Chart | None:
    columns = {f"machine {machine['machine']}": _points(machine, name) for machine in machines if name in machine}
    columns = {machine: points for machine, points in columns.items() if any(value for _, value in points)}
    if not columns:
        return None
    first, *others = columns
    shown = [first]
    if others:
        shown.append(max(others, key=lambda machine: abs(columns[machine][-1][1] - columns[first][-1][1])))
    lines = [Line(machine, columns[machine], style) for machine, style in zip(shown, ("c1", "c2"), strict=False)]
    legend = [(line.name, line.style, "") for line in lines] if others else []
    return Chart(title, line_chart(lines, title=f"{title} over steps", from_zero=True, value_label=written), legend)


def _points(machine: Mapping[str, Any], name: str) -> list[tuple[float, float]]:
    return [(step, value) for step, value in zip(machine["step"], machine[name], strict=False) if value is not None]
