"""Spans as values, in OpenTelemetry's terms, and the ids and headers that connect them. Pure.

Ids are hashes of names that do not change: whoever makes the spans of a job again gets the same ids, so that a backend can tell a span that
was sent twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from tuneyard.api.secrets import redact

Value = str | int | float | bool
Attributes = Mapping[str, Value]
LONGEST_TEXT = 300
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True, kw_only=True)
class Context:
    """A place in a trace that others can be below: the `traceparent` of W3C Trace Context (https://www.w3.org/TR/trace-context/)."""

    trace_id: int
    span_id: int
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.sampled):02x}"

    @classmethod
    def parse(cls, text: str) -> Context | None:
        """None for a text that is no `traceparent` of version 00, or has an id of zeros."""
        found = _TRACEPARENT.fullmatch(text.strip())
        if found is None:
            return None
        trace_id, span_id, flags = (int(part, 16) for part in found.groups())
        return cls(trace_id=trace_id, span_id=span_id, sampled=bool(flags & 1)) if trace_id and span_id else None


@dataclass(frozen=True)
class SpanEvent:
    """Something that happened at one moment of a span."""

    name: str
    at: datetime
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Span:
    """A piece of work with its begin and end. `end` is None while it goes on. `error`: why it failed; empty where it did not.

    `links`: ids of spans of the same trace that it depends on, or continues.
    """

    name: str
    context: Context
    parent_id: int | None
    start: datetime
    end: datetime | None
    attributes: Attributes = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    links: tuple[int, ...] = ()
    error: str = ""

    @property
    def id(self) -> int:
        return self.context.span_id

    def child(self, name: str, start: datetime, end: datetime | None, *key: object, **more: object) -> Span:
        """A span within this one: its times are cut to those of this one. `key`: what tells it from its siblings."""
        began = max(start, self.start) if self.end is None else min(max(start, self.start), self.end)
        ended = self.end if end is None else max(began, end if self.end is None else min(end, self.end))
        context = replace(self.context, span_id=id_of(self.context.trace_id, self.id, name, *key))
        return Span(name=name, context=context, parent_id=self.id, start=began, end=ended, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Mark:
    """The begin of a phase; the next mark ends it."""

    name: str
    at: datetime
    key: str = ""
    """What tells it from other phases of its name."""


def phases(parent: Span, marks: Sequence[Mark]) -> Iterator[Span]:
    """Children of `parent`, one after the other without gaps: each ends where the next begins, the last with `parent`.

    A mark earlier than the one before it begins with that one: clocks of two machines differ.
    """
    now = parent.start
    starts: list[datetime] = []
    for mark in marks:
        now = max(now, mark.at)
        starts.append(now)
    for index, mark in enumerate(marks):
        end = starts[index + 1] if index + 1 < len(marks) else parent.end
        yield parent.child(mark.name, starts[index], end, mark.key)


def id_of(*parts: object) -> int:
    """The span id (64 bits, not 0) of a sequence of names."""
    return int.from_bytes(_digest(parts)[:8], "big") or 1


def trace_id_of(*parts: object) -> int:
    """The trace id (128 bits, not 0) of a sequence of names."""
    return int.from_bytes(_digest(("trace", *parts))[:16], "big") or 1


def _digest(parts: Iterable[object]) -> bytes:
    return hashlib.sha256("\0".join(map(str, parts)).encode(errors="replace")).digest()


def told(values: Mapping[str, Value | None]) -> dict[str, Value]:
    """Attributes without those that are unknown. Texts are names, cut to a length; sentences pass `bounded` before."""
    known = {name: value for name, value in values.items() if value is not None and value != ""}
    return {name: cut(value) if isinstance(value, str) else value for name, value in known.items()}


def bounded(text: str) -> str:
    """A sentence without secrets, cut to `LONGEST_TEXT` characters."""
    return cut(redact(text[: 4 * LONGEST_TEXT])) if text else ""


def cut(text: str) -> str:
    """A text of at most `LONGEST_TEXT` characters."""
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
