"""Attempts on a time line: one stretched bar per attempt, beside texts that the page sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup, escape

_WIDTH, _HEIGHT, _LEAST = 1000, 12, 3


@dataclass(frozen=True)
class Span:
    """An attempt. `waited_from`: when it was placed, before its ranks began. `ended_at` None: it runs."""

    title: str
    note: str
    state: str
    started_at: datetime
    ended_at: datetime | None
    waited_from: datetime | None = None

    @property
    def began(self) -> datetime:
        return self.waited_from or self.started_at


@dataclass(frozen=True)
class Drawn:
    """A row of the time line. `seconds`: of the attempt."""

    span: Span
    bar: Markup
    seconds: float


def time_line(spans: Sequence[Span], now: datetime) -> list[Drawn]:
    """All attempts on one scale, from the first start to the last end."""
    if not spans:
        return []
    first = min(span.began for span in spans)
    last = max([span.ended_at or now for span in spans])
    whole = max((last - first).total_seconds(), 1e-3)
    return [_drawn(span, first, whole, now) for span in spans]


def _drawn(span: Span, first: datetime, whole: float, now: datetime) -> Drawn:
    def x(moment: datetime) -> float:
        return min(max((moment - first).total_seconds() / whole, 0.0), 1.0) * (_WIDTH - _LEAST)

    end = span.ended_at or max(now, span.started_at)
    seconds = max(0.0, (end - span.started_at).total_seconds())
    parts = [_rect("waited", x(span.began), x(span.started_at))] if span.waited_from is not None else []
    parts.append(_rect(span.state, x(span.started_at), x(end)))
    rail = f'<rect class="rail" x="0" y="{_HEIGHT / 2 - 0.5}" width="{_WIDTH}" height="1"/>'
    svg = f'<svg class="bar" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">{rail}{"".join(parts)}</svg>'
    return Drawn(span, Markup(svg), seconds)


def _rect(state: str, start: float, end: float) -> str:
    width = max(end - start, _LEAST)
    return f'<rect class="span {escape(state)}" x="{start:.1f}" y="0" width="{width:.1f}" height="{_HEIGHT}"/>'
