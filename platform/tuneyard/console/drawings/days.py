"""Runs per day as columns: succeeded below, then other ends, then failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from markupsafe import Markup

from tuneyard.tracking.charts import nice_ticks

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 520, 132, 34, 22, 8
_ORDER = ("succeeded", "running", "stopped", "failed")


def day_columns(days: Sequence[tuple[datetime, Mapping[str, int]]]) -> Markup:
    """The drawing. Empty where no day has a run."""
    most = max((sum(counts.values()) for _, counts in days), default=0)
    if not most:
        return Markup("")
    ticks = [tick for tick in nice_ticks(0, most, most=3) if tick == int(tick)]
    plot = _HEIGHT - _BOTTOM - _TOP
    step = (_WIDTH - _LEFT) / len(days)
    parts = [
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{_y(tick, ticks[-1])}" y2="{_y(tick, ticks[-1])}"/>'
        f'<text class="tick" x="{_LEFT - 8}" y="{_y(tick, ticks[-1]) + 4}" text-anchor="end">{tick:.0f}</text>'
        for tick in ticks
    ]
    for index, (day, counts) in enumerate(days):
        x, base = _LEFT + index * step, float(_HEIGHT - _BOTTOM)
        local = day.astimezone()
        said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "no runs"
        rows = [f"<title>{local:%Y-%m-%d}: {said}</title>", f'<rect class="day" x="{x:.1f}" y="0" width="{step:.1f}" height="{_HEIGHT}"/>']
        for status in _ORDER:
            count = counts.get(status, 0) + (_others(counts) if status == "stopped" else 0)
            if count:
                height = max(count / ticks[-1] * plot, 2)
                base -= height
                rows.append(f'<rect class="span {status}" x="{x + 4:.1f}" y="{base:.1f}" width="{step - 8:.1f}" height="{height:.1f}"/>')
        if index == len(days) - 1 or (len(days) - 1 - index) % 4 == 0:
            rows.append(f'<text class="tick" x="{x + step / 2:.1f}" y="{_HEIGHT - 4}" text-anchor="middle">{local:%b} {local.day}</text>')
        parts.append(f"<g>{''.join(rows)}</g>")
    return Markup(f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Runs per day">{"".join(parts)}</svg>')


def _others(counts: Mapping[str, int]) -> int:
    return sum(count for status, count in counts.items() if status not in _ORDER)


def _y(value: float, top: float) -> float:
    return round(_HEIGHT - _BOTTOM - value / top * (_HEIGHT - _BOTTOM - _TOP), 1)
