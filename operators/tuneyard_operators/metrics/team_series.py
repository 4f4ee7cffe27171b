"""Queues, quota and usage of teams. Pure."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tuneyard.api.team import TeamStatus
from tuneyard.api.wire import read
from tuneyard.federation import read_team, same_month
from tuneyard_operators.metrics import families as of
from tuneyard_operators.metrics.families import Sample

Label = Callable[[str], str]


@dataclass(frozen=True)
class Waiting:
    """A job that waits. `gpus`: the fewest with which its waiting tasks could start; `created`: seconds since 1970."""

    team: str
    gpus: int
    created: float


def queue_series(jobs: Iterable[Waiting], now_s: float, label: Label) -> Iterator[Sample]:
    """The queue of each team that has one."""
    count: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    oldest: dict[str, float] = {}
    for job in jobs:
        team = label(job.team)
        count[team] += 1
        gpus[team] += job.gpus
        oldest[team] = min(oldest.get(team, job.created), job.created)
    for team, number in count.items():
        yield of.QUEUED_JOBS, (team,), number
        yield of.QUEUED_GPUS, (team,), gpus[team]
        yield of.QUEUE_AGE, (team,), max(0.0, now_s - oldest[team])


def team_series(items: Iterable[Mapping[str, Any]], now: datetime, label: Label) -> Iterator[Sample]:
    """Quota and usage of the teams that have an object, as their statuses say: they outlive every restart of the hub."""
    for item in items:
        named = name_of(item)
        if named is None or label(named) != named:  # beyond the limit, limits of several teams cannot be shown as one
            continue
        team, status, spec = read_team(item, now)[0], read(TeamStatus, item.get("status")).value, item.get("spec")
        told = _of_team(named, team.quota or {}, status, spec if isinstance(spec, Mapping) else {}, now)
        yield from (sample for sample in told if math.isfinite(sample[2]))


def name_of(item: Mapping[str, Any]) -> str | None:
    """The name of an object; None for one that cannot be read."""
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) and name else None


def _of_team(name: str, quota: Mapping[str, int], status: TeamStatus, spec: Mapping[str, Any], now: datetime) -> Iterator[Sample]:
    for sku, gpus in quota.items():
        yield of.TEAM_QUOTA, (name, sku), gpus
        yield of.TEAM_BORROWED, (name, sku), status.borrowed.get(sku, 0)
    for sku in status.borrowed.keys() - quota.keys():
        yield of.TEAM_BORROWED, (name, sku), status.borrowed[sku]
    counts = same_month(status.usage_at, now)
    yield of.TEAM_HOURS, (name,), status.gpu_hours_used if counts else 0.0
    yield of.TEAM_COST, (name,), status.cost if counts else 0.0
    limit = spec.get("gpuHours")
    if isinstance(limit, int | float) and not isinstance(limit, bool) and abs(limit) <= sys.float_info.max:
        yield of.TEAM_LIMIT, (name,), float(limit)
