"""Prompts -> vLLM engines -> scored rows, committed part by part.

`prepare` and `finish` are the driver's ends of a task, `PartWorker` is what runs in between, in one process per engine, and
`Partition` says who scores what. Nothing here knows Ray. Loaded lazily: importing the room costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneyard.scoring.job import Measured, ScoreJob, finish, prepare
    from tuneyard.scoring.metrics import Sums
    from tuneyard.scoring.partition import Partition, parts_at_once
    from tuneyard.scoring.request import ScoreRequest, ScoreResult
    from tuneyard.scoring.rows import asks_of
    from tuneyard.scoring.worker import Loaded, OpenWork, PartDone, PartWorker

__all__ = [
    "Loaded",
    "Measured",
    "OpenWork",
    "PartDone",
    "PartWorker",
    "Partition",
    "ScoreJob",
    "ScoreRequest",
    "ScoreResult",
    "Sums",
    "asks_of",
    "finish",
    "parts_at_once",
    "prepare",
]

_HOMES = {
    "Loaded": "worker",
    "Measured": "job",
    "OpenWork": "worker",
    "PartDone": "worker",
    "PartWorker": "worker",
    "Partition": "partition",
    "ScoreJob": "job",
    "ScoreRequest": "request",
    "ScoreResult": "request",
    "Sums": "metrics",
    "asks_of": "rows",
    "finish": "job",
    "parts_at_once": "partition",
    "prepare": "job",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
