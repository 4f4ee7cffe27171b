"""Prompts -> vLLM engines -> scored rows, or tables -> rankers -> probabilities, committed part by part.

`work_of` opens the data of a task: `Work` is all that a pool of workers knows of it. Of engines, `prepare` and `finish` are the driver's
ends and `PartWorker` is what runs in between, in one process per engine; of rankers, see `ranker`. `Partition` says who scores what.
Nothing here knows Ray. Loaded lazily: importing the room costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneyard.scoring.job import Measured, ScoreJob, finish, prepare
    from tuneyard.scoring.metrics import Sums
    from tuneyard.scoring.partition import Partition, parts_at_once
    from tuneyard.scoring.request import ScoreRequest, ScoreResult
    from tuneyard.scoring.rows import asks_of
    from tuneyard.scoring.work import Counted, Work, work_of
    from tuneyard.scoring.worker import Loaded, OpenWork, PartDone, PartWorker

__all__ = [
    "Counted",
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
    "Work",
    "asks_of",
    "finish",
    "parts_at_once",
    "prepare",
    "work_of",
]

_HOMES = {
    "Counted": "work",
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
    "Work": "work",
    "asks_of": "rows",
    "finish": "job",
    "parts_at_once": "partition",
    "prepare": "job",
    "work_of": "work",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
