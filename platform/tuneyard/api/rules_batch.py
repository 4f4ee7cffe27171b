"""Whether a global batch divides into micro-batches and workers, and the nearest one that does."""

from __future__ import annotations

from tuneyard.api.rules_case import Case, Fix
from tuneyard.api.tasks import WorkerRange


def uneven_batch(case: Case) -> bool:
    """True where no allowed number of workers makes global = micro x accumulation x workers."""
    return not any(case.train.batch.divides_over(workers) for workers in _worker_counts(case))


def nearest_batch(case: Case) -> list[Fix]:
    """The nearest global batch, and the largest micro-batch below the wanted one that divides the wanted global batch."""
    batch, workers = case.train.batch, min(_worker_counts(case))
    micro = batch.micro if isinstance(batch.micro, int) else 1
    unit = micro * workers
    fixes: list[Fix] = [{"train.batch.global": max(unit, round(batch.global_ / unit) * unit)}]
    if micro > 1 and batch.global_ % workers == 0:
        per_worker = batch.global_ // workers
        fixes.insert(0, {"train.batch.micro": max(m for m in range(1, min(micro, per_worker) + 1) if per_worker % m == 0)})
    return fixes


def _worker_counts(case: Case) -> range:
    workers = case.resources.workers
    if isinstance(workers, WorkerRange):
        return range(workers.min, min(workers.max, max(workers.min, case.train.batch.global_)) + 1)
    return range(workers, workers + 1) if isinstance(workers, int) else range(1, 2)
