"""Score tasks: vLLM engines or endpoints score prompts, rankers score tables. Results are committed part by part.

1. `work_of` opens the data of a task. A pool of workers sees the task only as `Work`.
2. For engines, the driver calls `prepare`, then one process per engine runs a `PartWorker`, then the driver calls `finish`. For endpoints,
   see `endpoint`; for rankers, see `ranker`.
3. `Partition` assigns parts of the rows to workers.

No module here imports Ray. The room loads lazily: importing it costs nothing.
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
