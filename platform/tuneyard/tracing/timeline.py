"""The spans of a trace as lines of text: a tree with a bar for each span. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from tuneyard.api.moments import written_ms
from tuneyard.tracing.spans import Span

_BAR = 24
_SHOWN = ("k8s.cluster.name", "tuneyard.sku", "tuneyard.workers", "tuneyard.checkpoint.step")
_LONGEST_REASON = 100


def timeline(spans: Sequence[Span], now: datetime) -> list[str]:
    """One line per span: what, how long, when within the whole. Spans that go on end at `now`."""
    if not spans:
        return []
    known = {span.id for span in spans}
    below: defaultdict[int | None, list[Span]] = defaultdict(list)
    for span in spans:
        below[span.parent_id if span.parent_id in known else None].append(span)
    rows = [row for root in below[None] for row in _rows(root, below, 0)]
    begin = min(span.start for span in spans)
    whole_s = max((max(_end(span, now) for span in spans) - begin).total_seconds(), 1e-3)
    wide = max(len(label) for label, _ in rows)
    return [line for label, span in rows for line in _lines(label.ljust(wide), span, begin, whole_s, now)]


def span_facts(span: Span) -> dict[str, Any]:
    """The same for programs: a span with its ids as OpenTelemetry writes them."""
    return {
        "name": span.name,
        "trace_id": f"{span.context.trace_id:032x}",
        "span_id": f"{span.id:016x}",
        "parent_id": f"{span.parent_id:016x}" if span.parent_id is not None else None,
        "start": written_ms(span.start),
        "end": written_ms(span.end) if span.end is not None else None,
        "duration_s": round((span.end - span.start).total_seconds(), 3) if span.end is not None else None,
        "attributes": dict(span.attributes),
        "error": span.error,
    }


def _rows(span: Span, below: defaultdict[int | None, list[Span]], depth: int) -> Iterator[tuple[str, Span]]:
    yield "  " * depth + span.name, span
    for child in sorted(below[span.id], key=lambda each: each.start):
        yield from _rows(child, below, depth + 1)


def _lines(label: str, span: Span, begin: datetime, whole_s: float, now: datetime) -> Iterator[str]:
    took_s = (_end(span, now) - span.start).total_seconds()
    left = min(_BAR - 1, int(_BAR * (span.start - begin).total_seconds() / whole_s))
    width = max(1, min(_BAR - left, round(_BAR * took_s / whole_s)))
    bar = f"{'·' * left}{'█' * width}".ljust(_BAR, "·")
    facts = [str(span.attributes[name]) for name in _SHOWN if name in span.attributes]
    facts += ["goes on"] if span.end is None else []
    facts += [span.error] if span.error else []
    yield f"{label}  {duration(took_s):>9}  {bar}  {'  '.join(facts)}".rstrip()
    indent = " " * (len(label) - len(label.lstrip()) + 2)
    for event in span.events:
        reason = str(event.attributes.get("tuneyard.reason", ""))
        text = reason if len(reason) <= _LONGEST_REASON else reason[: _LONGEST_REASON - 1] + "…"
        yield f"{indent}{event.at:%H:%M:%S} {event.name}: {text}"


def _end(span: Span, now: datetime) -> datetime:
    return span.end if span.end is not None else max(now, span.start)


def duration(seconds: float) -> str:
    """`850 ms`, `12.3 s`, `4 min 05 s`, `2 h 10 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
