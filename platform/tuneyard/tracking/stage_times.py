"""The stages of an attempt with their times, folded from its events. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from tuneyard.api.moments import moment_of, written_ms
from tuneyard.api.status import MOST_STAGES, StageTime
from tuneyard.tracing import CHECKPOINT, bounded
from tuneyard.tracking.events import ROWS_OF_EVALUATION, Checkpointed, Event, Preflighted, Scored, Stage, Step, TaskEvent, Tried

Stages = tuple[StageTime, ...]
FIRST_STEP, TRAINING, SCORING, SEARCH, PREPARATION = "first step", "training", "scoring", "search", "prepare"
_MOST_CHECKPOINTS = 8
_LONGEST_S = 30 * 86_400.0
_FIRST_KEPT = MOST_STAGES // 2


def begun(name: str, at: datetime) -> Stages:
    """The stages of an attempt whose work begins with `name`."""
    return (StageTime(name=name, began_at=written_ms(at)),)


def stages_after(stages: Stages, event: Event, at: datetime) -> Stages:
    """The stages once `event` has happened, at `at` by this machine's clock. Events that begin or end no stage change nothing."""
    match event:
        case TaskEvent(state="started"):
            return _next(stages, PREPARATION, at)
        case TaskEvent():
            return _closed(stages, at)
        case Stage(name=name):
            return _next(stages, bounded(name), at)
        case Step(step_s=step_s):
            now = _open(stages)
            if now in (FIRST_STEP, TRAINING, bounded(ROWS_OF_EVALUATION)):
                return stages if now == TRAINING else _next(stages, TRAINING, at)
            return _next(_next(stages, FIRST_STEP, at - _length(step_s)), TRAINING, at)
        case Scored():
            return _next(stages, SCORING, at)
        case Tried():
            return _next(stages, SEARCH, at)
        case Checkpointed():
            return _with_checkpoint(stages, event, at)
        case Preflighted():
            return _next(stages, PREPARATION, at)
        case _:
            return stages


def _length(seconds: float) -> timedelta:
    return timedelta(seconds=min(max(0.0, seconds), _LONGEST_S)) if math.isfinite(seconds) else timedelta()


def _open(stages: Stages) -> str:
    last = next((each for each in reversed(stages) if each.name != CHECKPOINT), None)
    return last.name if last is not None and last.ended_at is None else ""


def _next(stages: Stages, name: str, at: datetime) -> Stages:
    """The stage under way ends, and another begins; nothing changes where it is under way already."""
    if _open(stages) == name:
        return stages
    last = next((each for each in reversed(stages) if each.name != CHECKPOINT), None)
    began = at if last is None else max(at, moment_of(last.began_at))
    return _bounded((*_closed(stages, began), StageTime(name=name, began_at=written_ms(began))))


def _closed(stages: Stages, at: datetime) -> Stages:
    return tuple(
        each if each.ended_at is not None else each.model_copy(update={"ended_at": written_ms(max(at, moment_of(each.began_at)))})
        for each in stages
    )


def _with_checkpoint(stages: Stages, event: Checkpointed, at: datetime) -> Stages:
    made = StageTime(
        name=CHECKPOINT,
        began_at=written_ms(at - _length(event.seconds)),
        ended_at=written_ms(at),
        step=event.step,
        blocked_s=round(max(0.0, event.blocked_s), 3),
    )
    known = [each for each in stages if each.name == CHECKPOINT]
    dropped = known[0] if len(known) >= _MOST_CHECKPOINTS else None
    return _bounded((*(each for each in stages if each is not dropped), made))


def _bounded(stages: Sequence[StageTime]) -> Stages:
    """The first and the last of too many stages."""
    if len(stages) <= MOST_STAGES:
        return tuple(stages)
    return (*stages[:_FIRST_KEPT], *stages[len(stages) - MOST_STAGES + _FIRST_KEPT :])
