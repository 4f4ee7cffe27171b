"""Tasks that wait for a placement, as the scheduler sees them. Pure."""

from __future__ import annotations

from tuneyard.api import FailureKind, JobStatus, PlacementStatus, Task, WorkerRange
from tuneyard.federation import Ask, Place
from tuneyard_operators.hub.lifecycle import Goal

WORKERS_ON_CPU = 2
_MOST_AUTO = 8
"""`workers: auto` takes one machine of GPUs until the planner chooses."""


def ask_of(goal: Goal, task_name: str, status: JobStatus) -> Ask:
    """The ask of one task of a job."""
    job = goal.job
    task = job.spec.task(task_name)
    worlds, unit = _worlds(task)
    return Ask(
        job=f"{job.metadata.namespace}/{job.metadata.name}",
        task=task_name,
        team=job.team,
        priority=job.spec.priority,
        created=goal.created.timestamp(),
        worlds=worlds,
        unit=unit,
        skus=_skus(task, job.spec.placement.skus),
        clusters=tuple(job.spec.placement.clusters),
        avoid=frozenset(
            (attempt.placement.cluster, attempt.failed_node)
            for attempt in status.attempts
            if attempt.task == task_name and attempt.failed_node and attempt.placement and attempt.failure != FailureKind.PREEMPTED
        ),
    )


def placement_of(place: Place) -> PlacementStatus:
    """A decision as the JobSpec's status records it."""
    return PlacementStatus(
        cluster=place.cluster,
        sku=place.sku,
        workers=max(1, place.workers // place.ask.unit),
        gpus=place.workers,
        pods=place.pods,
        nodes=dict(place.nodes),
    )


def _worlds(task: Task) -> tuple[tuple[int, ...], int]:
    """Numbers of GPUs that would do, best first, and how many must share a machine."""
    if task.process is not None:
        return (0,), 1  # runs on the head
    if task.score is not None:
        unit = task.score.engine.tensor_parallel
        return (task.resources.instances * unit,), unit
    workers = task.resources.workers
    if isinstance(workers, int):
        return (workers,), 1
    rows = task.train.batch.global_ if task.train is not None else 0
    on_cpu = task.resources.sku == ["cpu"] or not task.resources.sku
    least, most = (workers.min, workers.max) if isinstance(workers, WorkerRange) else (1, WORKERS_ON_CPU if on_cpu else _MOST_AUTO)
    fitting = tuple(count for count in range(most, least - 1, -1) if rows % count == 0)
    return fitting or (least,), 1


def _skus(task: Task, job_skus: list[str]) -> tuple[str, ...]:
    """SKUs that task and job both allow, in the task's order of preference."""
    if not task.resources.sku:
        return tuple(job_skus)
    return tuple(sku for sku in task.resources.sku if not job_skus or sku in job_skus)
