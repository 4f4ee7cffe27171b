"""Where a gang can start now: pools with enough free nodes, within quota and beside reservations, and the best of these pools.

`Finder.find` tries the options of an ask in order of preference. The first option with a suitable pool wins. Among its pools the lowest
score wins: predicted run time, price, distance to data, and fragmentation, all in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuneyard.federation.policy import Policy
from tuneyard.federation.pools import Indices, Layout, Pool, Pools, Scores, Start
from tuneyard.federation.queues import Feasibility, Option
from tuneyard.federation.reservations import Reservations, earliest, withheld_in
from tuneyard.federation.teams import Teams
from tuneyard.federation.world import Ask, Place


@dataclass(frozen=True)
class Found:
    """The result of a search for free GPUs. `place` is None where the ask cannot start now.

    `lacks_quota`: SKUs with enough free GPUs, but not enough quota. `backfill_s`: the longest duration with which an ask of this shape
    could use reserved GPUs. `better_later`: an elastic gang would end sooner if it waited for its full size.
    """

    place: Place | None = None
    lacks_quota: tuple[str, ...] = ()
    backfill_s: float | None = None
    better_later: bool = False


NOWHERE = Found()


@dataclass(frozen=True)
class Finder:
    """Searches free GPUs for asks of one cycle, which starts at `now`."""

    policy: Policy
    pools: Pools
    layout: Layout
    teams: Teams
    reservations: Reservations
    now: float

    def find(self, ask: Ask, feasibility: Feasibility) -> Found:
        """The best placement of the first option that has any."""
        lacks_quota: tuple[str, ...] = ()
        better_later = False
        backfill_s: float | None = None
        for option in feasibility.options:
            if not option.size:
                if len(option.pools):
                    return Found(self._place(ask, feasibility, option, option.pools))
                continue
            ok = self.pools.with_room(option.pods, option.size, option.pools)
            if not len(ok):
                continue
            if ask.avoid:
                ok = self._without_failed(feasibility, option, ok)
            allowed, lacking = self._within_quota(ask, option, ok)
            lacks_quota += lacking
            if self.reservations.gpus:
                allowed, longest_s = self._unreserved(ask, feasibility, option, allowed)
                backfill_s = backfill_s if longest_s is None else max(backfill_s or 0.0, longest_s)
            if not len(allowed):
                continue
            if option.workers != feasibility.first and self._is_better_later(ask, feasibility, option, allowed):
                better_later = True
                continue
            return Found(self._place(ask, feasibility, option, allowed))
        return Found(lacks_quota=lacks_quota, backfill_s=backfill_s, better_later=better_later)

    def earliest(self, ask: Ask, feasibility: Feasibility, *, awaits_quota: bool = False) -> Start | None:
        """The start of an ask that is predicted to end first, within the quota that its team has now. `awaits_quota`: or that it is
        predicted to have at the start."""
        reservations = self.reservations.gpus
        opened = self._opened(ask, feasibility, awaits_quota=awaits_quota)
        return earliest(ask, feasibility, self.now, reservations, opened, self.policy.speed)

    def waits_for_more(self, ask: Ask, feasibility: Feasibility) -> bool:
        """Whether an elastic gang would end sooner by waiting for its full size than by starting at its smallest. Such a gang preempts
        nothing."""
        if len(ask.worlds) == 1:
            return False
        seconds = [self.policy.speed(ask, sku, ask.smallest(sku)) for sku in feasibility.skus]
        return bool(seconds) and self._ends_sooner_later(ask, feasibility, min(seconds))

    # --- pools that are left

    def _without_failed(self, feasibility: Feasibility, option: Option, ok: Indices) -> Indices:
        """Pools that have room beside nodes which have failed this task."""
        pools = [self.layout.pools[index] for index in ok.tolist()]
        return ok[[_fits(pool, option, feasibility.avoided(pool)) for pool in pools]]

    def _within_quota(self, ask: Ask, option: Option, ok: Indices) -> tuple[Indices, tuple[str, ...]]:
        """Pools of SKUs within the team's quota, and the SKUs of the others."""
        if self.teams.is_unlimited(ask.team):
            return ok, ()
        lacking: list[str] = []
        for sku, mask in self.layout.by_sku.items():
            lacks = self.teams.may_take(ask.team, sku) < option.workers
            if not lacks and self.reservations.quota:
                ends = self.now + self.policy.speed(ask, sku, option.workers)
                lacks = not self.reservations.allow(ask.team, sku, option.workers, ends)
            if lacks:
                fewer = ok[~mask[ok]]
                if len(fewer) < len(ok):
                    lacking.append(sku)
                ok = fewer
        return ok, tuple(lacking)

    def _unreserved(self, ask: Ask, feasibility: Feasibility, option: Option, ok: Indices) -> tuple[Indices, float | None]:
        """Pools with room beside reservations; and the longest duration with which the ask could use a reservation in one of the others."""
        longest_s: float | None = None
        for each in self.reservations.gpus:
            index = each.pool.index
            if index not in ok:
                continue
            ends = self.now + self.policy.speed(ask, each.pool.sku.name, option.workers)
            if each.lent_until < ends and not _fits(each.pool, option, self._untouchable(feasibility, each.pool, ends)):
                ok = ok[ok != index]
                longest_s = max(longest_s or 0.0, each.lent_until - self.now)
        return ok, longest_s

    def _untouchable(self, feasibility: Feasibility, pool: Pool, ends: float) -> Mapping[str, int]:
        """GPUs by node that an attempt may not use if it ends at `ends`: reserved GPUs, and nodes that have failed the task."""
        withheld = withheld_in(pool, self.reservations.gpus, ends) if self.reservations.gpus else {}
        return {**withheld, **feasibility.avoided(pool)} if feasibility.ask.avoid else withheld

    # --- elastic gangs

    def _is_better_later(self, ask: Ask, feasibility: Feasibility, option: Option, ok: Indices) -> bool:
        skus = {self.layout.pools[index].sku.name for index in ok.tolist()}
        return self._ends_sooner_later(ask, feasibility, min(self.policy.speed(ask, sku, option.workers) for sku in skus))

    def _ends_sooner_later(self, ask: Ask, feasibility: Feasibility, soonest_s: float) -> bool:
        """Whether an ask ends sooner by waiting for its full size than after `soonest_s`. An ask that is owed freed GPUs takes any size:
        otherwise its victims would be preempted again and again."""
        if not self.policy.reservations or ask.owed_since is not None:
            return False
        later = self.earliest(ask, feasibility)
        return later is not None and later.at + self.policy.speed(ask, later.pool.sku.name, feasibility.first) < self.now + soonest_s

    def _opened(self, ask: Ask, feasibility: Feasibility, *, awaits_quota: bool) -> Iterator[tuple[Pool, float]]:
        """Pools for the first number of workers, and when the team has quota for it there."""
        first = feasibility.first
        opens: dict[str, float | None] = {}
        for pool in feasibility.allowed:
            if not pool.usable or not feasibility.fits(pool, first):
                continue
            sku = pool.sku.name
            if sku not in opens:
                opens[sku] = self._quota_at(ask, sku, first, awaits_quota=awaits_quota)
            at = opens[sku]
            if at is not None:
                yield pool, at

    def _quota_at(self, ask: Ask, sku: str, gpus: int, *, awaits_quota: bool) -> float | None:
        """When the team of an ask has quota for so many GPUs. None: at no known time, or not now where it does not await quota."""
        if awaits_quota:
            return self.reservations.quota_start(ask.team, sku, gpus, self.now)
        return self.now if self.teams.may_take(ask.team, sku) >= gpus else None

    # --- the best pool

    def _place(self, ask: Ask, feasibility: Feasibility, option: Option, indices: Indices) -> Place:
        """The placement in the best of these pools."""
        pool = self._best(ask, option, indices)
        seconds = self.policy.speed(ask, pool.sku.name, option.workers)
        nodes: Mapping[str, int] = {}
        if option.size:
            nodes = pool.pick(option.pods, option.size, self._untouchable(feasibility, pool, self.now + seconds))
        return Place(
            ask=ask, cluster=pool.member, sku=pool.sku.name, workers=option.workers, pods=option.pods, nodes=nodes, seconds=seconds
        )

    def _best(self, ask: Ask, option: Option, indices: Indices) -> Pool:
        """The pool with the lowest score; of equal pools the first by name."""
        if len(indices) == 1:
            return self.layout.pools[int(indices[0])]
        if self.policy.choice == "first":
            candidates: list[Pool] = [self.layout.pools[index] for index in indices.tolist()]
            return min(candidates, key=lambda pool: _first(ask, pool))
        scores = self._scores(ask, option, indices)
        candidates = [self.layout.pools[index] for index in indices[scores <= scores.min()].tolist()]
        return min(candidates, key=lambda pool: (pool.member, pool.sku.name))

    def _scores(self, ask: Ask, option: Option, indices: Indices) -> Scores:
        of_kind = np.empty(len(self.layout.kinds))
        for number, (sku, price) in enumerate(self.layout.kinds):
            seconds = self.policy.speed(ask, sku, option.workers)
            of_kind[number] = seconds * (1 + self.policy.seconds_per_price * price * option.workers / 3600)
        scores: Scores = of_kind[self.layout.kind_of[indices]]
        if ask.near or ask.clusters or ask.skus:
            scores += self._distance(ask)[indices]
        if option.size:
            scores += self.pools.torn(option.pods, option.size, indices) * self.policy.fragmentation_s
        return scores

    def _distance(self, ask: Ask) -> Scores:
        key, known = (ask.near, ask.clusters, ask.skus), self.layout.distances
        if key not in known:
            known[key] = np.array([self._distance_s(ask, pool) for pool in self.layout.pools])
        return known[key]

    def _distance_s(self, ask: Ask, pool: Pool) -> float:
        back = _place_in(ask.clusters, pool.member) + _place_in(ask.skus, pool.sku.name)
        far = self.policy.far_s if ask.near and not is_near(ask, pool.near) else 0.0
        return far + back * self.policy.preference_s


def is_near(ask: Ask, prefixes: Sequence[str]) -> bool:
    """Whether an ask reads data under one of these prefixes of URIs."""
    return any(uri.startswith(prefix) for uri in ask.near for prefix in prefixes)


def _fits(pool: Pool, option: Option, without: Mapping[str, int]) -> bool:
    return pool.room(option.size, without) >= option.pods


def _first(ask: Ask, pool: Pool) -> tuple[int, str, int, str]:
    return _place_in(ask.clusters, pool.member), pool.member, _place_in(ask.skus, pool.sku.name), pool.sku.name


def _place_in(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else len(names)
