"""Charts as inline SVG: no script, no font, no request. Colours come from the page's CSS, so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from tuneyard.tracking.formats import number

WIDTH, HEIGHT = 520, 230
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 38
MOST_DRAWN = 400
"""Points of a line: more would not be told apart at this width."""
MOST_HOVERED = 100
_LARGEST = 1e250
BAR_HEIGHT, BAR_GAP, BAR_LEFT, BAR_RIGHT = 18, 9, 74, 80


@dataclass(frozen=True)
class Chart:
    """A drawing with its heading; `legend` is (name, CSS class, note)."""

    title: str
    drawing: Markup
    legend: list[tuple[str, str, str]]


@dataclass(frozen=True)
class Line:
    """A named series over steps. `style` is a CSS class: c1 or c2. `dots`: points are marked, for series with few of them."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str = "c1"
    dots: bool = False


@dataclass(frozen=True)
class Part:
    """A part of a bar. `style` is a CSS class, p1 to p7."""

    name: str
    value: float
    style: str


@dataclass(frozen=True)
class Bar:
    """A named bar of one or several parts."""

    name: str
    parts: Sequence[Part]

    @property
    def total(self) -> float:
        return sum(part.value for part in self.parts)


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` + 1 round values (1, 2 or 5 times a power of ten apart) that span [low, high]."""
    if not high > low:
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(index * step, 12 - math.floor(math.log10(step))) for index in range(first, last + 1)]


def tick_label(value: float, step: float) -> str:
    """A tick with as many decimals as its distance to the next one needs."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if step >= size / 10 and abs(value) >= size / 2:
            return f"{value / size:.{_decimals(step / size)}f}{unit}"
    return f"{value:.{_decimals(step)}f}"


def _decimals(step: float) -> int:
    return max(0, -math.floor(math.log10(step) + 1e-9))


def line_chart(
    lines: Sequence[Line], *, title: str, from_zero: bool, value_label: Callable[[float], str] = number, over: str = "step"
) -> Markup:
    """Lines over steps, or `over` something else that is counted. `from_zero`: the value axis starts at 0. Empty where there is nothing to
    draw."""
    lines = [Line(line.name, finite, line.style, line.dots) for line in lines if (finite := _finite(line.points))]
    if not lines:
        return Markup("")
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    ticks = nice_ticks(0 if from_zero else min(ys), max(ys))
    plot = _Plot(min(xs), max(xs), ticks[0], ticks[-1])
    parts = [_axes(plot, ticks, _whole(nice_ticks(min(xs), max(xs), most=6)), over)]
    parts += [_drawn(line, plot) for line in lines]
    parts += [_hover(line, plot, value_label, over) for line in lines]
    return _svg("".join(parts), HEIGHT, title)


@dataclass(frozen=True)
class _Plot:
    """From values to places."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        span = self.x_high - self.x_low
        share = (value - self.x_low) / span if span else 0.5
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that can be drawn. Values beyond _LARGEST are left out: their difference may be no finite number. The smallest are 0."""
    known = [(x, y) for x, y in points if isinstance(y, int | float) and math.isfinite(y) and abs(y) <= _LARGEST]
    return [(x, y if abs(y) >= 1 / _LARGEST else 0.0) for x, y in known]


def _whole(ticks: list[float]) -> list[float]:
    """Steps are whole numbers."""
    return [tick for tick in ticks if tick == int(tick)]


def _thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most `most` + 1 points, the first and the last among them."""
    stride = max(1, math.ceil(len(points) / most))
    kept = list(points[::stride])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _axes(plot: _Plot, y_ticks: list[float], x_ticks: list[float], over: str) -> str:
    y_step = y_ticks[1] - y_ticks[0]
    x_step = x_ticks[1] - x_ticks[0] if len(x_ticks) > 1 else 1.0
    rows = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{plot.y(tick)}" y2="{plot.y(tick)}"/>'
        f'<text class="tick" x="{LEFT - 8}" y="{plot.y(tick) + 4}" text-anchor="end">{tick_label(tick, y_step)}</text>'
        for tick in y_ticks
    ]
    columns = [
        f'<text class="tick" x="{plot.x(tick)}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick_label(tick, x_step)}</text>'
        for tick in x_ticks
        if plot.x_low <= tick <= plot.x_high
    ]
    base = f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>'
    name = f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{escape(over)}</text>'
    return "".join([*rows, *columns, base, name])


def _drawn(line: Line, plot: _Plot) -> str:
    points = _thinned(line.points, MOST_DRAWN)
    places = " ".join(f"{plot.x(x)},{plot.y(y)}" for x, y in points)
    marked = line.dots or len(points) == 1
    dots = "".join(f'<circle class="dot {line.style}" cx="{plot.x(x)}" cy="{plot.y(y)}" r="3.5"/>' for x, y in points) if marked else ""
    return f'<polyline class="line {line.style}" points="{places}"/>{dots}'


def _hover(line: Line, plot: _Plot, value_label: Callable[[float], str], over: str) -> str:
    """An invisible column around each point that shows its value, and marks it, under the pointer."""
    points = _thinned(line.points, MOST_HOVERED)
    groups = []
    for x, y in points:
        # Marks of a sparse series would lie hidden under the columns of a dense one: they get a small area around the mark.
        if line.dots:
            width, top, height = 18.0, plot.y(y) - 9, 18.0
        else:
            width, top, height = (WIDTH - LEFT - RIGHT) / max(len(points), 12), TOP, HEIGHT - TOP - BOTTOM
        groups.append(
            f'<g class="hover"><rect x="{plot.x(x) - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
            f'<circle class="dot {line.style}" cx="{plot.x(x)}" cy="{plot.y(y)}" r="4"/>'
            f"<title>{escape(over)} {x:.0f} · {escape(line.name)} {escape(value_label(y))}</title></g>"
        )
    return "".join(groups)


def bar_chart(bars: Sequence[Bar], *, title: str, value_label: Callable[[float], str], limit: float | None = None) -> Markup:
    """Horizontal bars on one scale, each with its total; `limit` draws a dashed line across them. Empty without bars."""
    if not bars or max(bar.total for bar in bars) <= 0:
        return Markup("")
    widest = max([bar.total for bar in bars] + ([limit] if limit else []))
    scale = (WIDTH - BAR_LEFT - BAR_RIGHT) / widest
    parts = []
    for index, bar in enumerate(bars):
        y = index * (BAR_HEIGHT + BAR_GAP)
        parts.append(f'<text class="tick" x="{BAR_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(bar.name)}</text>')
        x = float(BAR_LEFT)
        for part in bar.parts:
            width = part.value * scale
            label = f"{escape(bar.name)} · {escape(part.name)} {escape(value_label(part.value))}"
            parts.append(
                f'<rect class="part {part.style}" x="{x:.1f}" y="{y}" width="{max(width, 0):.1f}" height="{BAR_HEIGHT}" rx="2">'
                f"<title>{label}</title></rect>"
            )
            x += width
        parts.append(f'<text class="value" x="{x + 6:.1f}" y="{y + 13}">{escape(value_label(bar.total))}</text>')
    height = len(bars) * (BAR_HEIGHT + BAR_GAP)
    if limit:
        x = BAR_LEFT + limit * scale
        parts.append(f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - BAR_GAP}"/>')
    return _svg("".join(parts), height, title)


def share_bar(parts: Sequence[Part], *, title: str, value_label: Callable[[float], str]) -> Markup:
    """One bar over the whole width whose parts are shares of their sum. Empty where that is 0."""
    total = sum(part.value for part in parts)
    if total <= 0:
        return Markup("")
    drawn, x = [], 0.0
    for part in parts:
        width = WIDTH * part.value / total
        drawn.append(
            f'<rect class="part {part.style}" x="{x:.1f}" y="0" width="{max(width, 0):.1f}" height="34">'
            f"<title>{escape(part.name)} {escape(value_label(part.value))} ({100 * part.value / total:.1f} %)</title></rect>"
        )
        x += width
    return _svg("".join(drawn), 34, title, stretched=True)


def _svg(content: str, height: float, title: str, *, stretched: bool = False) -> Markup:
    """`stretched`: the drawing, which has no text, takes any width at its own height."""
    fit = ' class="flat" preserveAspectRatio="none"' if stretched else ""
    return Markup(f'<svg viewBox="0 0 {WIDTH} {height}"{fit} role="img" aria-label="{escape(title)}">{content}</svg>')
