"""Spans of the stages that an attempt reports. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from tuneyard.api.moments import moment_of
from tuneyard.api.status import StageTime
from tuneyard.tracing.spans import Mark, Span, cut, phases, told

CHECKPOINT = "checkpoint"
"""Name of the stage of a checkpoint, which is written beside the others."""


def stage_spans(attempt: Span, before: Sequence[Mark], stages: Sequence[StageTime]) -> Iterator[Span]:
    """The phases of an attempt: those of its start, then its stages, and what is left until its end; checkpoints below the stage that
    they began in.
    """
    marks = list(before)
    last: StageTime | None = None
    for stage in stages:
        if stage.name != CHECKPOINT:
            if last is not None and last.ended_at is not None and moment_of(last.ended_at) < moment_of(stage.began_at):
                marks.append(Mark("between stages", moment_of(last.ended_at), last.ended_at))
            marks.append(Mark(cut(stage.name), moment_of(stage.began_at), stage.began_at))
            last = stage
    if last is not None and last.ended_at is not None:
        marks.append(Mark("report and end", moment_of(last.ended_at)))
    made = list(phases(attempt, marks))
    yield from made
    for stage in stages:
        if stage.name == CHECKPOINT:
            yield _checkpoint(_around(made, moment_of(stage.began_at)) or attempt, stage)


def _around(spans: Sequence[Span], at: datetime) -> Span | None:
    return next((span for span in reversed(spans) if span.start <= at), None)


def _checkpoint(parent: Span, stage: StageTime) -> Span:
    attributes = told({"tuneyard.checkpoint.step": stage.step, "tuneyard.checkpoint.blocked_s": stage.blocked_s})
    end = moment_of(stage.ended_at) if stage.ended_at else None
    return parent.child(CHECKPOINT, moment_of(stage.began_at), end, stage.step, stage.began_at, attributes=attributes)
