"""GPUs of members: how many there are, and how many attempts hold and use. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tuneyard.api import Attempt, JobStatus, Phase
from tuneyard_operators.metrics import families as of
from tuneyard_operators.metrics.families import Sample
from tuneyard_operators.metrics.job_series import ListedJob

Pools = Mapping[tuple[str, str], tuple[int, int]]
"""Member and SKU -> free GPUs, all GPUs."""


def gpu_series(jobs: Iterable[ListedJob], pools: Pools, usable: frozenset[str]) -> Iterator[Sample]:
    """`usable`: names of the members on which a gang may start now."""
    allocated: Counter[tuple[str, str, str]] = Counter()
    used: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    held: Counter[tuple[str, str]] = Counter()
    for job in jobs:
        for attempt in job.active:
            if attempt.placement is not None:
                pool = (attempt.placement.cluster, attempt.placement.sku)
                held[pool] += attempt.placement.gpus
                allocated[job.team, *pool] += attempt.placement.gpus
                used[job.team, *pool] += attempt.placement.gpus * _busy_share(attempt, job.status)
    for pool, (free, total) in pools.items():
        yield of.GPUS, pool, total
        yield of.FREE_GPUS, pool, free
        yield of.IDLE_GPUS, pool, max(0, free - held[pool]) if pool[0] in usable else 0
    for place, gpus in allocated.items():
        yield of.ALLOCATED_GPUS, place, gpus
        yield of.USED_GPUS, place, used[place]


def _busy_share(attempt: Attempt, status: JobStatus) -> float:
    """Share of the time in which an attempt's GPUs work, as far as its ranks tell."""
    if attempt.phase is not Phase.RUNNING:
        return 0.0
    progress = next((task.progress for task in status.tasks if task.name == attempt.task), None)
    waits = ((progress.data_wait or 0.0) + (progress.checkpoint_wait or 0.0)) if progress is not None else 0.0
    return min(1.0, max(0.0, 1.0 - waits))
