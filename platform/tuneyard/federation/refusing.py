"""For which kinds of ask nobody could be asked to go, remembered until something changes that matters; then only that is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuneyard.federation.pools import Pool, Pools
from tuneyard.federation.teams import Teams

_MOST_REMEMBERED = 100_000


@dataclass(frozen=True)
class _Refusal:
    """`pools`, `teams`: how many changes of them were known. `claimed`: pools of which others were promised something then."""

    layout: int
    rules: int
    pools: int
    teams: int
    claimed: frozenset[int]


class Refusals:
    def __init__(self, pools: Pools, teams: Teams) -> None:
        self._pools = pools
        self._teams = teams
        self._known: dict[object, _Refusal] = {}
        self._grown: tuple[int, int, frozenset[str]] = (-1, -1, frozenset())

    def begin(self) -> None:
        """A new cycle."""
        if len(self._known) > _MOST_REMEMBERED:
            self._known.clear()

    def refuse(self, kind: object, claimed: Iterable[int]) -> None:
        """Nobody can be asked to go for asks of this kind."""
        self._known[kind] = _Refusal(self._pools.layout, self._teams.version, self._pools.changes, self._teams.changes, frozenset(claimed))

    def worth_a_look(self, kind: object, team: str, pools: Sequence[Pool]) -> Sequence[Pool]:
        """Those of the pools of which a refusal may not hold any more. `team`: the asker's, where its quota matters; else empty."""
        known = self._known.get(kind)
        if known is None or known.layout != self._pools.layout or known.rules != self._teams.version:
            return pools
        if team and self._teams.changed_at(team) > known.teams:
            return pools
        if known.pools == self._pools.changes and not known.claimed:
            return ()
        found = [pool for pool in pools if pool.version > known.pools or pool.index in known.claimed]
        if team:
            grown = self._grown_since(known.teams)
            if grown:
                found += [pool for pool in pools if pool not in found and not grown.isdisjoint(pool.teams())]
        return found

    def _grown_since(self, change: int) -> frozenset[str]:
        if self._grown[:2] != (change, self._teams.changes):
            self._grown = (change, self._teams.changes, frozenset(self._teams.grown_since(change)))
        return self._grown[2]
