"""Charts of a run's data: rows and tokens of each part of a mixture, the time to make streamed rows, and waits by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuneyard.tracking.bottleneck import SMALL
from tuneyard.tracking.charts import Bar, Chart, Line, Part, bar_chart, line_chart
from tuneyard.tracking.formats import duration, percent

_STYLES = 6


def data_charts(task: Mapping[str, Any]) -> list[Chart]:
    """Charts of a train task. A chart without values has no drawing."""
    details = task.get("details") or {}
    return [_mixture_chart(details.get("mixture") or {}), _stream_chart(details.get("stream") or {}), _waits_chart(task)]


def _waits_chart(task: Mapping[str, Any]) -> Chart:
    """The wait of each step, if the mean wait is at least 1 %."""
    series = task.get("series") or {}
    shares = [(step, 100 * share) for step, share in zip(series.get("step") or [], series.get("data_share") or [], strict=False)]
    if sum(share for _, share in shares) < 100 * SMALL * len(shares):
        shares = []
    drawing = line_chart([Line("wait", shares)], title="Waiting for data by step", from_zero=True, value_label=lambda v: percent(v / 100))
    return Chart("Waiting for data, % of each step", drawing, [])


def _mixture_chart(mixture: Mapping[str, Any]) -> Chart:
    title = "Rows and tokens by part of the mixture"
    names: Sequence[str] = mixture.get("parts") or []
    rows, tokens = (_sums(mixture.get(name) or []) for name in ("rows_by_step", "tokens_by_step"))
    if not names or not sum(rows):
        return _chart(title, [], [], percent)
    shares = [count / sum(rows) for count in rows]
    bars = [Bar("by weight", _parts(names, mixture.get("shares") or shares)), Bar("of all rows", _parts(names, shares))]
    if sum(tokens):
        bars.append(Bar("of all tokens", _parts(names, [count / sum(tokens) for count in tokens])))
    legend = [(part.name, part.style, f"{rows[i]:,} rows" if i < len(rows) else "") for i, part in enumerate(bars[1].parts)]
    return _chart(title, bars, legend, percent)


def _sums(by_step: Sequence[Sequence[int]]) -> list[int]:
    return [sum(step) for step in zip(*by_step, strict=True)]


def _parts(names: Sequence[str], values: Sequence[float]) -> list[Part]:
    """One bar part per part of the mixture; the last of many are one."""
    shown = [*zip(names, values, strict=True)]
    if len(shown) > _STYLES:
        shown = [*shown[: _STYLES - 1], ("others", sum(value for _, value in shown[_STYLES - 1 :]))]
    return [Part(name, value, f"p{index + 1}") for index, (name, value) in enumerate(shown)]


def _stream_chart(stream: Mapping[str, Any]) -> Chart:
    seconds: Mapping[str, float] = stream.get("seconds") or {}
    if not sum(seconds.values()):
        return _chart("What making rows took", [], [], duration)
    parts = _parts([*seconds], [*seconds.values()])
    legend = [(part.name, part.style, duration(part.value)) for part in parts]
    waited = f"; rank 0 waited {duration(stream.get('waited_s') or 0.0)} for it"
    return _chart(f"What making rows took, in seconds of one process{waited}", [Bar("work", parts)], legend, duration)


def _chart(title: str, bars: Sequence[Bar], legend: list[tuple[str, str, str]], label: Any) -> Chart:
    return Chart(title, bar_chart(bars, title=title, value_label=label), legend)
