"""Series of unfinished jobs, from their statuses.

At most `MOST_JOBS` jobs have series of their own, those with the most GPUs first. `tuneyard_jobs_without_series` counts the others; the
sums by team, member and SKU hold all jobs.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tuneyard.api import Attempt, JobStatus, Phase
from tuneyard.api.moments import moment_of
from tuneyard.federation import held_hours
from tuneyard_operators.metrics import families as of
from tuneyard_operators.metrics.families import Sample
from tuneyard_operators.metrics.job_counters import JobCounters

MOST_JOBS = 1000
SMALL = 0.01
"""Smallest share of waiting for data that is told."""


@dataclass(frozen=True)
class ListedJob:
    """An unfinished job with at least one attempt. `team`: as a label; `uid`: tells it from an earlier job of its name."""

    namespace: str
    name: str
    team: str
    status: JobStatus
    uid: str = ""

    @property
    def labels(self) -> tuple[str, str, str]:
        return self.namespace, self.name, self.team

    @property
    def active(self) -> list[Attempt]:
        return [attempt for attempt in self.status.attempts if attempt.ended_at is None]

    @property
    def gpus(self) -> int:
        return sum(attempt.placement.gpus for attempt in self.active if attempt.placement is not None)


def phase_series(stored: Iterable[Mapping[str, Any]]) -> Iterator[Sample]:
    """Number of jobs by phase. `stored`: the stored status of each job."""
    phases = Counter(str(status.get("phase", Phase.PENDING)) for status in stored)
    return ((of.JOBS, (str(phase),), phases[str(phase)]) for phase in Phase)


def job_series(jobs: Iterable[ListedJob], now: datetime, counters: JobCounters, most: int = MOST_JOBS) -> Iterator[Sample]:
    """The series of the largest jobs, and the number of the others. `counters`: what was told before."""
    listed = list(jobs)
    counters.keep({job.uid for job in listed})
    shown = listed if len(listed) <= most else heapq.nsmallest(most, listed, key=lambda job: (-job.gpus, job.labels))
    yield of.JOBS_WITHOUT_SERIES, (), len(listed) - len(shown)
    for job in shown:
        for family, value in counters.rising(job.uid, _series(job, now)):
            yield family, job.labels, value


def _series(job: ListedJob, now: datetime) -> Iterator[tuple[of.Family, float]]:
    status, attempts = job.status, job.status.attempts
    placed = [(attempt, attempt.placement) for attempt in attempts if attempt.placement is not None and attempt.placed_at]
    held_s = [(held_hours(attempt, moment_of(attempt.placed_at or ""), now) * placement.gpus, placement) for attempt, placement in placed]
    yield of.JOB_GPUS, job.gpus
    yield of.JOB_GPU_SECONDS, 3600 * sum(hours for hours, _ in held_s)
    yield of.JOB_COST, sum(hours * placement.price_per_gpu_hour for hours, placement in held_s)
    last = {attempt.task: attempt for attempt in attempts}
    slept = sum(bool(attempt.asleep_at) and attempt is not last[attempt.task] for attempt in attempts)
    yield of.JOB_RESTARTS, len(attempts) - len(last) - slept
    if status.phase is Phase.RUNNING:
        yield from _pace(job, now)


def _pace(job: ListedJob, now: datetime) -> Iterator[tuple[of.Family, float]]:
    progress = job.status.progress
    told = (
        (of.JOB_MFU, progress.mfu),
        (of.JOB_PLANNED_MFU, progress.planned_mfu),
        (of.JOB_GPU_USE, progress.gpu_utilization),
        (of.JOB_CPU_USE, progress.cpu_share),
        (of.JOB_NETWORK, _bytes(progress.network_gb_per_s)),
        (of.JOB_HOST_MEMORY, _bytes(progress.host_memory_gb)),
        (of.JOB_TOKENS, progress.tokens_per_s),
        (of.CHECKPOINT_WAIT, progress.checkpoint_wait),
        (of.CHECKPOINT_SECONDS, progress.checkpoint_s),
        (of.JOB_PROGRESS, progress.step / progress.of if progress.of else None),
        (of.DATA_WAIT, progress.data_wait if (progress.data_wait or 0.0) >= SMALL else None),
        (of.CHECKPOINT_AGE, _since_s(_saved_at(job.active), now)),
    )
    return ((family, value) for family, value in told if value is not None)


def _bytes(gigabytes: float | None) -> float | None:
    return None if gigabytes is None else 1e9 * gigabytes


def _saved_at(active: list[Attempt]) -> str | None:
    """When the newest attempt committed its last checkpoint, or when its ranks began; None for an attempt without steps to save."""
    newest = active[-1] if active else None
    return (newest.checkpoint_at or newest.started_at) if newest is not None and newest.last_step else None


def _since_s(moment: str | None, now: datetime) -> float | None:
    return max(0.0, (now - moment_of(moment)).total_seconds()) if moment else None
