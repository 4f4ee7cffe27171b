"""GPU-hours and cost by month and team, summed over the namespaces that a reader may see. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

MONTHS = 6


@dataclass(frozen=True)
class Spent:
    """Use of one team in one month (UTC), such as `2026-11`. Its jobs have held GPUs in it, or ended a task at an endpoint."""

    month: str
    team: str
    jobs: int
    gpu_hours: float
    cost: float
    endpoint_cost: float = 0.0


def first_month(now: datetime) -> datetime:
    """The beginning of the first of the last MONTHS months, in UTC."""
    today = now.astimezone(UTC)
    months = today.year * 12 + today.month - MONTHS
    return datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)


def spent_of(rows: Iterable[Mapping[str, Any]]) -> list[Spent]:
    """Rows of usage by month and team, the newest month first, in it the largest first. Rows of several namespaces are added."""
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    for row in rows:
        one = sums[str(row["month"]), str(row["team"])]
        for place, name in enumerate(("jobs", "gpu_hours", "cost", "endpoint_cost")):
            one[place] += row.get(name) or 0  # hubs of earlier versions have no endpoint_cost
    found = [Spent(month, team, int(jobs), hours, *costs) for (month, team), (jobs, hours, *costs) in sums.items()]
    return sorted(found, key=lambda each: (-int(each.month.replace("-", "")), -each.gpu_hours, each.team))
