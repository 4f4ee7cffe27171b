"""Divisibility of a global batch by micro-batches and workers, and the nearest batch that divides."""

from __future__ import annotations

from tuneyard.api.rules_case import Case, Fix
from tuneyard.api.tasks import WorkerRange


def uneven_batch(case: Case) -> bool:
    """True if no allowed number of workers gives global = micro x accumulation x replicas. A replica is one worker, or a group that shares
    rows.

    `uneven-groups` judges workers that do not form whole groups.
    """
    workers, ranks = case.resources.workers, case.train.ranks_per_replica
    if isinstance(workers, int) and workers % ranks:
        return False
    if isinstance(workers, WorkerRange) and workers.max // ranks * ranks < workers.min:
        return False
    return not any(case.train.batch.divides_over(replicas) for replicas in _replica_counts(case))


def nearest_batch(case: Case) -> list[Fix]:
    """The nearest global batch that divides, and the largest smaller micro-batch that divides the requested global batch."""
    batch, replicas = case.train.batch, min(_replica_counts(case))
    micro = batch.micro if isinstance(batch.micro, int) else 1
    unit = micro * replicas
    fixes: list[Fix] = [{"train.batch.global": max(unit, round(batch.rows / unit) * unit)}]
    if micro > 1 and batch.rows % replicas == 0:
        per_replica = batch.rows // replicas
        fixes.insert(0, {"train.batch.micro": max(m for m in range(1, min(micro, per_replica) + 1) if per_replica % m == 0)})
    return fixes


def _replica_counts(case: Case) -> list[int]:
    """Replicas for each allowed number of workers; at least 1, since `uneven-groups` refuses workers without a whole group."""
    ranks = case.train.ranks_per_replica
    counts = _worker_counts(case)
    return sorted({workers // ranks for workers in counts if workers % ranks == 0} or {max(1, counts.start // ranks)})


def _worker_counts(case: Case) -> range:
    workers = case.resources.workers
    if isinstance(workers, WorkerRange):
        batch = case.train.batch
        most = workers.max if batch.is_open else batch.rows * case.train.ranks_per_replica
        return range(workers.min, min(workers.max, max(workers.min, most)) + 1)
    return range(workers, workers + 1) if isinstance(workers, int) else range(1, 2)
