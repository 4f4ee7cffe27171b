"""Values of a scheduler from API objects: asks and attempts from JobSpecs, members from Clusters.

The hub and `tuneyard submit --dry-run` read API objects by the same rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tuneyard.api import (
    Attempt,
    Cluster,
    FailureKind,
    JobSpec,
    JobStatus,
    NodeInventory,
    Phase,
    PlacementStatus,
    Task,
    WorkerRange,
)
from tuneyard.api.moments import moment_of
from tuneyard.api.worker_counts import MOST_AUTO, WORKERS_ON_CPU, worker_counts
from tuneyard.catalog import canonical_sku
from tuneyard.federation.policy import speed_factor
from tuneyard.federation.repeats import series_of
from tuneyard.federation.world import PRIORITIES, UNKNOWN_DURATION_S, Ask, Basis, Member, Node, Running, SkuFacts

_LEAST_S = 60.0
SERVES_S = 30 * 24 * 3600.0
"""Seconds for which the machines of a serve task count as taken from now on: no plan of the scheduler waits for its end."""
SCHEDULE_LABEL = "tuneyard.dev/schedule"
"""The label of a job that names the Schedule which has created it."""


@dataclass(frozen=True, kw_only=True)
class Fits:
    """A planner's answer about the memory of a task's model: `worlds`, `least` and `words` are `Ask.worlds`, `Ask.least` and `Ask.fit`."""

    worlds: tuple[int, ...]
    least: tuple[tuple[str, int], ...] = ()
    words: str = ""


def job_name(job: JobSpec) -> str:
    return f"{job.metadata.namespace}/{job.metadata.name}"


def ask_of(
    job: JobSpec, created: float, task_name: str, status: JobStatus, planned_s: float | None = None, fits: Fits | None = None
) -> Ask:
    """The ask of one task of a job. `planned_s` and `fits` are a planner's answers: the duration of the task on the reference SKU with its
    first number of workers, and where its model fits. None: no planner was asked."""
    task = job.spec.task(task_name)
    gang = job.spec.gang_of(task)
    worlds, unit = _worlds(gang)
    fits = fits or Fits(worlds=worlds)
    own = [attempt for attempt in status.attempts if attempt.task == task_name]
    seconds, basis = _left_s(job, task_name, status, own, planned_s)
    return Ask(
        job=job_name(job),
        task=task_name,
        team=job.team,
        priority=job.spec.priority,
        created=created,
        worlds=fits.worlds,
        unit=unit,
        engines=gang.engine_ranks is not None,
        skus=skus_of(job, gang),
        clusters=tuple(job.spec.placement.clusters),
        least=fits.least,
        fit=fits.words,
        avoid=frozenset(
            (attempt.placement.cluster, attempt.failed_node)
            for attempt in own
            if job.spec.retries.on_node_failure != "retry"
            and attempt.failed_node
            and attempt.placement
            and attempt.failure != FailureKind.PREEMPTED
        ),
        seconds=seconds,
        basis=basis,
        series=series_of(job.metadata.namespace or "default", job.metadata.labels.get(SCHEDULE_LABEL, ""), task_name),
        near=tuple(_near(gang, status)),
        preemptible=job.is_preemptible(task),
        owed_since=next((_at(task.owed_since) for task in status.tasks if task.name == task_name), None),
    )


def attempts_of(name: str, spec: Mapping[str, Any], namespace: str, status: JobStatus, now: float, grace_s: float) -> Iterator[Running]:
    """The attempts of a job that hold GPUs. An attempt holds its GPUs until all its objects on the member are deleted. The number of the
    attempt is part of its name, because a task may have two attempts at a time. `spec` comes from the API server without validation. Only
    `team`, `priority`, `preemptible` and which tasks serve are read; an invalid value counts as the default."""
    priority = spec.get("priority") if spec.get("priority") in list(PRIORITIES) else "normal"
    preemptible = spec.get("preemptible") if isinstance(spec.get("preemptible"), bool) else None
    team = spec.get("team") if isinstance(spec.get("team"), str) and spec.get("team") else namespace
    serving = _serving(spec)
    preempted: Counter[str] = Counter()
    for attempt in status.attempts:
        placement = attempt.placement
        before = preempted[attempt.task]
        preempted[attempt.task] += attempt.stopping == "Preempted"
        if placement is None or attempt.cleaned:
            continue
        started = _at(attempt.placed_at) or now
        stopping = bool(attempt.stopping) or attempt.ended_at is not None
        asked = _at(attempt.ended_at) or _at(attempt.stop_asked_at) or now
        yield Running(
            job=name,
            task=f"{attempt.task}/{attempt.number}",
            team=str(team),
            priority=str(priority),
            cluster=placement.cluster,
            sku=canonical_sku(placement.sku),
            nodes=placement.nodes,
            started=started,
            ends=asked + grace_s if stopping else now + SERVES_S if attempt.task in serving else _end(attempt, status, started, now),
            saved=_at(attempt.checkpoint_at) or started,
            preemptible=preemptible if preemptible is not None else priority != "urgent" and attempt.task not in serving,
            stopping=stopping,
            ended=attempt.ended_at is not None,
            preempted=before,
        )


def _serving(spec: Mapping[str, Any]) -> set[str]:
    """Names of the serve tasks of a spec without validation."""
    tasks = spec.get("tasks")
    listed = [task for task in tasks if isinstance(task, Mapping)] if isinstance(tasks, list) else []
    return {str(task.get("name")) for task in listed if isinstance(task.get("serve"), Mapping)}


@dataclass(frozen=True)
class Taken:
    """The duration of an ended task and its author's guess, in seconds on the SKU of its first attempt."""

    task: str
    guessed_s: float
    took_s: float
    ended: float


def taken_by(status: JobStatus) -> Iterator[Taken]:
    """Durations of ended tasks with a guess: tasks that have succeeded, and tasks of ended jobs that took longer than their guess. The time
    of attempts on another SKU or number of GPUs is converted by predicted speed."""
    for task in status.tasks:
        own = [attempt for attempt in status.attempts if attempt.task == task.name and attempt.placement and attempt.ended_at]
        has_succeeded = task.phase is Phase.SUCCEEDED
        if not own or own[0].placement is None or not (has_succeeded or status.phase.final):
            continue
        guessed_s, took_s = own[0].placement.guessed_seconds, 0.0
        for attempt in own:
            began, ended = _at(attempt.started_at or attempt.placed_at), _at(attempt.ended_at)
            if attempt.placement is not None and began is not None and ended is not None:
                took_s += max(0.0, ended - began) * _power(attempt.placement) / _power(own[0].placement)
        last = _at(own[-1].ended_at)
        if guessed_s and last is not None and took_s > (0.0 if has_succeeded else guessed_s):
            yield Taken(task.name, guessed_s, took_s, last)


def _power(placement: PlacementStatus) -> float:
    return max(1, placement.gpus) * speed_factor(canonical_sku(placement.sku))


def sku_names(cluster: Cluster) -> dict[str, str]:
    """The catalog's name of each SKU of a Cluster, by the Cluster's own."""
    return {sku.name: canonical_sku(sku.name) for sku in cluster.spec.skus}


def own_sku(cluster: Cluster, name: str) -> str:
    """The Cluster's own name of a SKU of its `Member`."""
    return next((own for own, known in sku_names(cluster).items() if known == name), name)


def member_of(cluster: Cluster, nodes: Iterable[NodeInventory], *, why_not: str = "") -> Member:
    """A member from a Cluster and its nodes. `free` of a node counts GPUs that pods of others leave. `why_not`: why the member is unusable;
    empty where it is usable."""
    spec = cluster.spec
    reason = why_not or ("cordoned" if spec.cordoned else "")
    names = sku_names(cluster)
    return Member(
        name=cluster.metadata.name,
        skus=tuple(SkuFacts(names[sku.name], sku.gpus_per_node, sku.price_per_gpu_hour) for sku in spec.skus),
        nodes=tuple(Node(node.name, names.get(node.sku, node.sku), node.gpus, node.free if node.ready else 0) for node in nodes),
        usable=not reason,
        why_not=reason,
        near=tuple(spec.storage),
    )


def held_hours(attempt: Attempt, since: datetime, until: datetime) -> float:
    """Hours for which an attempt held its GPUs between two moments."""
    if attempt.placed_at is None or attempt.placement is None:
        return 0.0
    began, ended = _at(attempt.placed_at), _at(attempt.ended_at)
    last = until.timestamp() if ended is None else min(ended, until.timestamp())
    return max(0.0, last - max(began or 0.0, since.timestamp())) / 3600


def worlds_of(gang: Task) -> tuple[int, ...]:
    """Possible numbers of GPUs for the ranks or engines of a task, best first."""
    return _worlds(gang)[0]


def skus_of(job: JobSpec, gang: Task) -> tuple[str, ...]:
    """SKUs that task and job both allow, in the task's order of preference, by the catalog's names. Empty: any SKU."""
    own, allowed = ([canonical_sku(sku) for sku in skus] for skus in (gang.resources.sku, job.spec.placement.skus))
    return tuple(dict.fromkeys(sku for sku in own if not allowed or sku in allowed)) if own else tuple(dict.fromkeys(allowed))


def unmatched_skus(job: JobSpec) -> Iterator[tuple[int, str]]:
    """Tasks that can run nowhere because the job forbids all SKUs that they name: index in `spec.tasks`, and reason."""
    allowed = {canonical_sku(sku) for sku in job.spec.placement.skus}
    for index, task in enumerate(job.spec.tasks):
        own = {canonical_sku(sku) for sku in task.resources.sku}
        if own and allowed and not own & allowed:
            yield index, f"names {', '.join(sorted(own))}, and placement.skus allows {', '.join(sorted(allowed))} alone: name one of these"


def _worlds(task: Task) -> tuple[tuple[int, ...], int]:
    """Possible numbers of GPUs, best first; and the number that must share a node: GPUs of an engine, or of a tensor-parallel group."""
    if task.process is not None or task.endpoint is not None:
        return (0,), 1  # runs on the head
    if task.engine_ranks is not None:
        return (task.resources.instances * task.engine_ranks,), task.engine_ranks
    training = task.training
    unit = training.layout.tensor_parallel if training is not None else 1
    on_cpu = task.resources.sku == ["cpu"] or not task.resources.sku
    usual = max(WORKERS_ON_CPU if on_cpu else MOST_AUTO, training.ranks_per_replica if training is not None else 1)
    asked = task.resources.workers
    return worker_counts(task, usual=usual) or (asked.min if isinstance(asked, WorkerRange) else 1,), unit


def _left_s(job: JobSpec, task: str, status: JobStatus, own: list[Attempt], planned_s: float | None) -> tuple[float, Basis]:
    """The predicted remaining seconds of a task, and their source: the pace of its last attempt with steps, else its author's guess, else
    the planner, else an assumption."""
    whole, basis = _whole_s(job, planned_s)
    found = next((each for each in status.tasks if each.name == task), None)
    of = found.progress.of if found is not None else 0
    done = max((attempt.checkpoint_step for attempt in own), default=0)
    for attempt in reversed(own):
        began, ended = _at(attempt.started_at), _at(attempt.ended_at)
        steps = attempt.last_step - attempt.resumed_from
        if of and began is not None and ended is not None and steps > 0:
            return max(_LEAST_S, (of - done) * (ended - began) / steps), "pace"
    return (max(_LEAST_S, whole * (1 - done / of)) if of else whole), basis


def _whole_s(job: JobSpec, planned_s: float | None) -> tuple[float, Basis]:
    if job.spec.expected_duration:
        return job.spec.expected_duration, "given"
    return (planned_s, "plan") if planned_s is not None else (UNKNOWN_DURATION_S, "assumed")


def _end(attempt: Attempt, status: JobStatus, started: float, now: float) -> float:
    """The predicted end of an attempt: from the pace of its steps so far, else from the prediction of its placement."""
    found = next((each for each in status.tasks if each.name == attempt.task), None)
    began = _at(attempt.started_at)
    steps = attempt.last_step - attempt.resumed_from
    if found is not None and found.progress.of and began is not None and steps > 0 and now > began:
        return began + (now - began) * (found.progress.of - attempt.resumed_from) / steps
    predicted = attempt.placement.seconds if attempt.placement is not None else None
    return started + (predicted if predicted is not None else UNKNOWN_DURATION_S)


def _near(task: Task, status: JobStatus) -> Iterator[str]:
    for source in task.sources().values():
        if source.source is not None and "://" in source.source:
            yield source.source
    if status.output and any(attempt.checkpoint_step for attempt in status.attempts):
        yield status.output


def _at(text: str | None) -> float | None:
    return moment_of(text).timestamp() if text else None
