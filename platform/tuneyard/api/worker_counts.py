"""Possible numbers of workers of a task. The scheduler, local runs, plans and rules share this answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from tuneyard.api.tasks import Task, TuneTask, WorkerRange
from tuneyard.api.train import TrainTask

WORKERS_ON_CPU = 2
"""`workers: auto` on cpu: enough to run the distributed code of clusters, and few enough for a laptop."""
MOST_AUTO = 8
"""Upper bound of `workers: auto`: one machine of GPUs, unless the planner says that the model needs more."""
_MOST_COUNTS = 64


def worker_counts(task: Task, *, usual: int, limit: int | None = None) -> tuple[int, ...]:
    """Numbers of workers that a task allows, best first.

    A fixed number stays as it is. In a range, and in 1 to `usual` for `auto`, the allowed numbers form whole copies of the model over which
    the batch divides; the largest comes first. Empty if there is none.

    `limit`: the largest number of a range to use, such as the GPUs of a machine. A range that starts above it yields its minimum.
    """
    asked, training = task.resources.workers, task.training
    if isinstance(asked, int):
        return (asked,)
    least, most = 1, usual
    if isinstance(asked, WorkerRange):
        least, most = asked.min, asked.max if limit is None else max(asked.min, min(asked.max, limit))
    return dividing(None, least, most) if training is None else counts_dividing(training, least, most)


def gangs_in(tune: TuneTask, tuned: Task, devices: int) -> int:
    """Number of gangs with which a search runs on so many devices: at most `atOnce`, and at least one. Gangs at once have the size that the
    tuned task names."""
    workers = tuned.resources.workers
    return min(tune.budget.at_once, max(1, devices // workers)) if isinstance(workers, int) else 1


def counts_dividing(train: TrainTask, least: int, most: int) -> tuple[int, ...]:
    """Numbers of ranks that form whole replicas over which a task's batch divides, in descending order."""
    replica = train.ranks_per_replica
    return tuple(count * replica for count in dividing(train.batch.micro_batches, -(-least // replica), most // replica))


@lru_cache(maxsize=1024)
def dividing(parts: int | None, least: int, most: int) -> tuple[int, ...]:
    """Numbers of workers over which `parts` divide evenly (None: all), in descending order. A long list is thinned to the largest, the
    smallest and some between.
    """
    found: Sequence[int] = range(most, least - 1, -1)
    if parts is not None:
        low = [count for count in range(1, math.isqrt(parts) + 1) if parts % count == 0]
        found = sorted({count for each in low for count in (each, parts // each) if least <= count <= most}, reverse=True)
    if len(found) <= _MOST_COUNTS:
        return tuple(found)
    return tuple(found[round(index * (len(found) - 1) / (_MOST_COUNTS - 1))] for index in range(_MOST_COUNTS))
