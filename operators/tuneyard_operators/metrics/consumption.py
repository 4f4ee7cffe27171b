"""Adds up the GPU-seconds that attempts hold, and their price, by team, member and SKU.

The sums grow from the moment at which a replica begins to lead, by the times in the statuses of jobs: however often Prometheus asks, each
second counts once. A restart begins at zero, as every counter of Prometheus may.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from datetime import datetime

from tuneyard.api import Attempt
from tuneyard.federation import held_hours
from tuneyard_operators.metrics.families import COST, GPU_SECONDS, Sample

Pool = tuple[str, str, str]
"""Team, member, SKU."""


class Consumption:
    """`since`: when the count begins; `label`: the label of a team (`TeamNames.label`)."""

    def __init__(self, since: datetime, label: Callable[[str], str]) -> None:
        self._since = since
        self._label = label
        self._counted: dict[str, datetime] = {}
        """The moment up to which an active attempt is counted, by its name."""
        self._seconds: defaultdict[Pool, float] = defaultdict(float)
        self._cost: defaultdict[Pool, float] = defaultdict(float)

    def ended(self, team: str, attempts: Iterable[Attempt], now: datetime) -> None:
        """Count attempts that have just ended, up to their ends."""
        for attempt in attempts:
            self._add(team, attempt, now)
            self._counted.pop(attempt.name, None)

    def advance(self, attempts: Iterable[tuple[str, Attempt]], now: datetime) -> None:
        """Count all active attempts, each with its team, up to now."""
        active = set()
        for team, attempt in attempts:
            self._add(team, attempt, now)
            self._counted[attempt.name] = now
            active.add(attempt.name)
        for name in self._counted.keys() - active:
            del self._counted[name]

    def forget(self, teams: Set[str]) -> None:
        """Drop the sums of teams that have lost their label."""
        for pool in [pool for pool in self._seconds if pool[0] in teams]:
            del self._seconds[pool], self._cost[pool]

    def series(self) -> Iterator[Sample]:
        for pool, seconds in self._seconds.items():
            yield GPU_SECONDS, pool, seconds
            yield COST, pool, self._cost[pool]

    def _add(self, team: str, attempt: Attempt, now: datetime) -> None:
        placement = attempt.placement
        hours = held_hours(attempt, self._counted.get(attempt.name, self._since), now)
        if placement is not None and hours:
            pool = (self._label(team), placement.cluster, placement.sku)
            self._seconds[pool] += hours * 3600 * placement.gpus
            self._cost[pool] += hours * placement.gpus * placement.price_per_gpu_hour
