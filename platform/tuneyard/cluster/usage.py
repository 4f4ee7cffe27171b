"""Usage of teams, jobs and SKUs, and idle GPUs, counted from the hub's JobSpecs, or from its run history where it has one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from tuneyard.api import Attempt, Cluster, ClusterStatus, JobSpec, JobStatus, Phase
from tuneyard.api.moments import moment_of
from tuneyard.cluster.snapshot import Snapshot
from tuneyard.federation import held_hours

_SUMS = ("gpu_hours", "cost", "endpoint_cost")


@dataclass(frozen=True)
class Used:
    """GPU-hours (slot-hours on cpu) of one job on one SKU, and its GPUs now."""

    team: str
    job: str
    sku: str
    gpu_hours: float
    cost: float
    gpus_now: int
    endpoint_cost: float = 0.0
    """Charged by endpoints for score tasks."""


def used_of(row: Mapping[str, Any]) -> Used:
    """A row of usage by team, job and SKU, as a hub's history answers it. Hubs of earlier versions have no `endpoint_cost`."""
    team, job, sku = (str(row.get(name) or "") for name in ("team", "job", "sku"))
    gpu_hours, cost, endpoint_cost = (float(row.get(name) or 0.0) for name in _SUMS)
    return Used(team, job, sku, gpu_hours, cost, 0, endpoint_cost)


@dataclass(frozen=True)
class SkuUse:
    """`idle`: share of the period's GPU-hours that no attempt of the hub used; None without GPUs."""

    sku: str
    gpus: int
    gpu_hours: float
    cost: float
    idle: float | None


@dataclass(frozen=True)
class UsageReport:
    since: datetime
    until: datetime
    jobs: tuple[Used, ...]
    skus: tuple[SkuUse, ...]
    partial: str = ""
    has_past: bool = False
    """Whether jobs are counted whose JobSpecs are gone."""

    def teams(self) -> list[dict[str, Any]]:
        """A row per team and SKU, the largest first."""
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for used in self.jobs:
            row = rows.setdefault(
                (used.team, used.sku), {"team": used.team, "sku": used.sku, "jobs": 0, "gpus_now": 0, **dict.fromkeys(_SUMS, 0.0)}
            )
            row["jobs"] += 1
            row["gpus_now"] += used.gpus_now
            for name in _SUMS:
                row[name] += getattr(used, name)
        return sorted(rows.values(), key=lambda row: (-row["gpu_hours"], -row["endpoint_cost"], row["team"], row["sku"]))


def usage_report(
    snapshot: Snapshot, since: datetime, until: datetime, team: str | None = None, past: Sequence[Used] | None = None
) -> UsageReport:
    """Usage between two moments. `team` selects the rows of jobs; the idle share counts all teams.

    `past`: usage of the same period by run history, with `gpus_now` 0; None: the hub has no history.
    """
    everything = with_past(list(_used(snapshot, since, until)), past)
    skus = tuple(_sku_use(snapshot, everything, since, until))
    shown = sorted((used for used in everything if team in (None, used.team)), key=lambda used: (-used.gpu_hours, used.job, used.sku))
    return UsageReport(since, until, tuple(shown), skus, snapshot.partial, past is not None)


def with_past(present: Sequence[Used], past: Sequence[Used] | None) -> list[Used]:
    """Usage by history, with the GPUs that JobSpecs hold now. Jobs that history does not have yet count by their JobSpecs."""
    if past is None:
        return list(present)
    now = {(used.team, used.job, used.sku): used for used in present}
    known = {(used.team, used.job, used.sku): used for used in past}
    counted = [replace(used, gpus_now=now[key].gpus_now) if key in now else used for key, used in known.items()]
    return [*counted, *(used for key, used in now.items() if key not in known)]


def _used(snapshot: Snapshot, since: datetime, until: datetime) -> Iterator[Used]:
    for item in snapshot.jobs:
        found = snapshot.read_job(item)
        if found is None:
            continue
        job, status = found
        by_sku: dict[str, list[float]] = {}
        for attempt in status.attempts:
            hours = held_hours(attempt, since, until)
            if attempt.placement is None:
                continue
            charged = _charged(job, status, attempt, since, until)
            if (hours and attempt.placement.gpus) or charged:
                row = by_sku.setdefault(attempt.placement.sku, [0.0, 0.0, 0, 0.0])
                row[3] += charged
                row[0] += hours * attempt.placement.gpus
                row[1] += hours * attempt.placement.gpus * attempt.placement.price_per_gpu_hour
                row[2] += attempt.placement.gpus if attempt.ended_at is None else 0
        for sku, (gpu_hours, cost, now, charged) in sorted(by_sku.items()):
            yield Used(job.team or "default", f"{job.metadata.namespace}/{job.metadata.name}", sku, gpu_hours, cost, int(now), charged)


def _charged(job: JobSpec, status: JobStatus, attempt: Attempt, since: datetime, until: datetime) -> float:
    """What endpoints have charged for an attempt that has ended in the period. Statuses of earlier versions have no charge: there, the cost
    of a task that has succeeded counts."""
    if attempt.ended_at is None or not since <= moment_of(attempt.ended_at) < until:
        return 0.0
    if attempt.charged is not None:
        return attempt.charged
    spec = next((task for task in job.spec.tasks if task.name == attempt.task), None)
    embedding = spec.score.embedding if spec is not None and spec.score is not None else None
    at_endpoint = spec is not None and spec.endpoint is not None
    charges = at_endpoint or (embedding is not None and embedding.endpoint is not None)
    if not charges or attempt.phase is not Phase.SUCCEEDED:
        return 0.0
    figure = "cost" if at_endpoint else "embedding_cost"
    cost = next((task.metrics.get(figure) for task in status.tasks if task.name == attempt.task), None)
    return float(cost) if isinstance(cost, int | float) else 0.0


def _sku_use(snapshot: Snapshot, used: Iterable[Used], since: datetime, until: datetime) -> Iterator[SkuUse]:
    totals: dict[str, list[float]] = {}
    for each in (use for use in used if use.gpu_hours):
        row = totals.setdefault(each.sku, [0.0, 0.0])
        row[0] += each.gpu_hours
        row[1] += each.cost
    gpus, gpu_hours_there = _gpus(snapshot.clusters, since, until)
    for sku in sorted({*totals, *gpus}):
        gpu_hours, cost = totals.get(sku, [0.0, 0.0])
        whole = gpu_hours_there.get(sku, 0.0)
        yield SkuUse(sku, gpus.get(sku, 0), gpu_hours, cost, max(0.0, 1 - gpu_hours / whole) if whole else None)


def _gpus(clusters: Iterable[Mapping[str, Any]], since: datetime, until: datetime) -> tuple[dict[str, int], dict[str, float]]:
    """GPUs per SKU by the last count of nodes, and their GPU-hours since each cluster joined."""
    found: dict[str, int] = {}
    hours: dict[str, float] = {}
    for item in clusters:
        known = {key: item[key] for key in ("metadata", "spec", "status") if item.get(key)}
        try:
            cluster = Cluster.model_validate(known, extra="ignore")
        except ValidationError:
            continue  # of a newer hub: `tuneyard clusters` says that it cannot be read
        joined = item["metadata"].get("creationTimestamp")
        began = max(since, datetime.fromisoformat(joined)) if joined else since
        there = max(0.0, (until - began).total_seconds() / 3600)
        for node in (cluster.status or ClusterStatus()).nodes:
            found[node.sku] = found.get(node.sku, 0) + node.gpus
            hours[node.sku] = hours.get(node.sku, 0.0) + node.gpus * there
    return found, hours
