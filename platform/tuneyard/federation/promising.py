"""Quota kept for those who are next: the same as a reservation of GPUs, for what a team or a cohort may hold.

Without it the small jobs of a team would take its quota piece by piece for ever, and its large one never had enough of it at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tuneyard.federation.teams import Limit, Teams


@dataclass
class _Promise:
    """At `until` so much quota is needed that whoever ends later may take no more than `spare` GPUs until then."""

    until: float
    spare: float


class Promises:
    """Of one cycle."""

    def __init__(self, teams: Teams) -> None:
        self._teams = teams
        self._by_limit: dict[tuple[Limit, str], list[_Promise]] = {}
        self._of_team: Counter[tuple[str, str]] = Counter()

    def begin(self) -> None:
        """A new cycle."""
        self._by_limit.clear()
        self._of_team.clear()

    def __bool__(self) -> bool:
        return bool(self._by_limit)

    def gpus(self, team: str, sku: str) -> int:
        """Promised to asks of a team in this cycle."""
        return self._of_team[team, sku]

    def make(self, team: str, sku: str, gpus: int, until: float, back_by: float = -math.inf, now: float = -math.inf) -> None:
        """An ask of this team, for which room is kept or made, needs so much quota at `until`. `back_by`, `now`: where others go for it,
        when the last has gone. What runs on past its prediction gives nothing back then: who took quota on its word would have to go as
        well, and who has gone would take it again meanwhile."""
        self._of_team[team, sku] += gpus
        for limit in self._teams.limits(team):
            spare = self._teams.left(limit, sku) + self._teams.gives_back(limit, sku, max(until, back_by), now) - gpus
            self._by_limit.setdefault((limit, sku), []).append(_Promise(until, max(0, spare)))

    def make_when_free(self, team: str, skus: Sequence[str], gpus: int, now: float) -> None:
        """An ask of this team lacks quota: promise it what becomes free first, of one of these SKUs. Each limit promises once a cycle."""
        starts = [(start, sku) for sku in skus if (start := self._teams.quota_start(team, sku, gpus, now)) is not None]
        if not starts:
            return
        start, sku = min(starts)
        if not any((limit, sku) in self._by_limit for limit in self._teams.limits(team)):
            self.make(team, sku, gpus, start)

    def allows(self, team: str, sku: str, gpus: int, ends: float) -> bool:
        """Whether nobody who was promised quota lacks it if this team takes so many GPUs up to `ends`."""
        return all(
            each.until >= ends or each.spare >= gpus for limit in self._teams.limits(team) for each in self._by_limit.get((limit, sku), ())
        )

    def take(self, team: str, sku: str, gpus: int, ends: float) -> None:
        """This team has taken so many GPUs up to `ends`."""
        for limit in self._teams.limits(team):
            for each in self._by_limit.get((limit, sku), ()):
                if each.until < ends:
                    each.spare -= gpus
