"""Run history (SQL), Comet, reports, and the events that feed them."""

from tuneyard.tracking.events import (
    Checkpointed,
    Emit,
    Evaluated,
    Event,
    Scored,
    Stage,
    Step,
    TaskEvent,
    TaskState,
    TimeSplit,
    Warned,
    silent,
)

__all__ = [
    "Checkpointed",
    "Emit",
    "Evaluated",
    "Event",
    "Scored",
    "Stage",
    "Step",
    "TaskEvent",
    "TaskState",
    "TimeSplit",
    "Warned",
    "silent",
]
