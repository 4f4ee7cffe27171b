"""Room for an ask in what is free now: on nodes, within quota, kept from nobody; and which nodes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuneyard.federation.choosing import Chooser
from tuneyard.federation.policy import Policy
from tuneyard.federation.pools import Indices, Pool, Pools
from tuneyard.federation.promising import Promises
from tuneyard.federation.reserving import Reservation, Start, Starts, withheld_in
from tuneyard.federation.shapes import Option, Shape
from tuneyard.federation.teams import Teams
from tuneyard.federation.world import Ask, Place


@dataclass(frozen=True)
class Found:
    """What looking for room for an ask came to. `lacks_quota`: SKUs of which there would be room, but for quota. `held_s`: it would fit if
    it ended within so long, and others are kept that room for. `better_later`: it would end sooner by waiting for its full size."""

    pool: Pool | None = None
    option: Option | None = None
    lacks_quota: tuple[str, ...] = ()
    held_s: float | None = None
    better_later: bool = False


NOWHERE = Found()


class Finder:
    """`reservations`: those of this cycle, which grow while it lasts."""

    def __init__(
        self, policy: Policy, pools: Pools, teams: Teams, starts: Starts, promises: Promises, reservations: list[Reservation]
    ) -> None:
        self._policy = policy
        self._pools = pools
        self._teams = teams
        self._starts = starts
        self._promises = promises
        self._reservations = reservations
        self._choose = Chooser(policy, pools)

    def find(self, ask: Ask, shape: Shape, now: float) -> Found:
        """The best pool with room, for the first world that has any."""
        lacks_quota: tuple[str, ...] = ()
        better_later = False
        held_s: float | None = None
        for option in shape.options(self._pools):
            if not option.size:
                if len(option.pools):
                    return Found(self._choose.choose(ask, option, option.pools), option)
                continue
            if self._pools.most_room(option.size) < option.pods:
                continue
            ok = option.pools[self._pools.room(option.size)[option.pools] >= option.pods]
            if not len(ok):
                continue
            if ask.avoid:
                ok = self._without_failed(shape, option, ok)
            allowed, lacking = self._within_quota(ask, option, ok, now)
            lacks_quota += lacking
            if self._reservations:
                allowed, longest_s = self._not_kept(ask, shape, option, allowed, now)
                held_s = held_s if longest_s is None else max(held_s or 0.0, longest_s)
            if not len(allowed):
                continue
            if option.workers != shape.first(self._pools) and self._is_better_later(ask, shape, option, allowed, now):
                better_later = True
                continue
            return Found(self._choose.choose(ask, option, allowed), option)
        return Found(lacks_quota=lacks_quota, held_s=held_s, better_later=better_later)

    def place(self, ask: Ask, shape: Shape, found: Found, now: float) -> Place:
        """A placement in what was found."""
        pool, option = found.pool, found.option
        assert pool is not None
        assert option is not None
        seconds = self._policy.speed(ask, pool.sku.name, option.workers)
        without = self._untouchable(shape, pool, now + seconds) if option.size else {}
        return Place(
            ask=ask,
            cluster=pool.member,
            sku=pool.sku.name,
            workers=option.workers,
            pods=option.pods,
            nodes=pool.pick(option.pods, option.size, without) if option.size else {},
            seconds=seconds,
        )

    def earliest(self, ask: Ask, shape: Shape, now: float) -> Start | None:
        """Where and when the first world that is possible could start, as far as its team's quota goes."""
        return self._starts.earliest(ask, shape, now, self._reservations, self._open(ask, shape))

    def _untouchable(self, shape: Shape, pool: Pool, ends: float) -> Mapping[str, int]:
        """GPUs by node that are kept from whoever ends then, or have failed the task."""
        withheld = withheld_in(pool, self._reservations, ends) if self._reservations else {}
        avoided = shape.avoided(self._pools, pool)
        return {**withheld, **avoided} if avoided else withheld

    def _without_failed(self, shape: Shape, option: Option, ok: Indices) -> Indices:
        """Without pools that would do only with nodes that have failed this task, unless no others ever would."""
        pools = [self._pools.all[index] for index in ok.tolist()]
        return ok[[fits(pool, option, shape.avoided(self._pools, pool)) for pool in pools]]

    def _within_quota(self, ask: Ask, option: Option, ok: Indices, now: float) -> tuple[Indices, tuple[str, ...]]:
        """The pools that the team's quota lets it use, and the SKUs of the others."""
        team = self._teams[ask.team].team
        if team.quota is None and not team.closed:
            return ok, ()
        lacking: list[str] = []
        for sku, mask in self._pools.by_sku().items():
            lacks = self._teams.may_take(ask.team, sku) < option.workers
            if not lacks and self._promises:
                lacks = not self._promises.allows(ask.team, sku, option.workers, now + self._policy.speed(ask, sku, option.workers))
            if lacks:
                fewer = ok[~mask[ok]]
                if len(fewer) < len(ok):
                    lacking.append(sku)
                ok = fewer
        return ok, tuple(lacking)

    def _not_kept(self, ask: Ask, shape: Shape, option: Option, ok: Indices, now: float) -> tuple[Indices, float | None]:
        """Without pools where others are kept the room that it would take for longer; and how short it must be for the best of those."""
        longest_s: float | None = None
        for each in self._reservations:
            index = each.pool.index
            if index not in ok:
                continue
            ends = now + self._policy.speed(ask, each.pool.sku.name, option.workers)
            if each.lent_until < ends and not fits(each.pool, option, self._untouchable(shape, each.pool, ends)):
                ok = ok[ok != index]
                longest_s = max(longest_s or 0.0, each.lent_until - now)
        return ok, longest_s

    def waits_for_more(self, ask: Ask, shape: Shape, now: float) -> bool:
        """Whether an elastic gang would leave room for its smallest world alone, and end sooner by waiting for its first: nobody is to go
        for it then."""
        if len(ask.worlds) == 1:
            return False
        seconds = [self._policy.speed(ask, sku, ask.smallest(sku)) for sku in shape.skus(self._pools)]
        return bool(seconds) and self._ends_sooner_later(ask, shape, min(seconds), now)

    def _is_better_later(self, ask: Ask, shape: Shape, option: Option, ok: Indices, now: float) -> bool:
        """Whether an elastic gang would end sooner by waiting for its full size than by starting small now."""
        skus = {self._pools.all[index].sku.name for index in ok.tolist()}
        return self._ends_sooner_later(ask, shape, min(self._policy.speed(ask, sku, option.workers) for sku in skus), now)

    def _ends_sooner_later(self, ask: Ask, shape: Shape, soonest_s: float, now: float) -> bool:
        """Whether an ask ends sooner by waiting for its first world than after `soonest_s`. What others have gone for is taken, however
        small: they would else be asked again and again."""
        if not self._policy.reservations or ask.owed_since is not None:
            return False
        later = self.earliest(ask, shape, now)
        return later is not None and later.at + self._policy.speed(ask, later.pool.sku.name, shape.first(self._pools)) < now + soonest_s

    def _open(self, ask: Ask, shape: Shape) -> Iterator[Pool]:
        first = shape.first(self._pools)
        for pool in shape.allowed(self._pools):
            if pool.usable and shape.fits(pool, first) and self._teams.may_take(ask.team, pool.sku.name) >= first:
                yield pool


def fits(pool: Pool, option: Option, without: Mapping[str, int]) -> bool:
    """Whether there is room in a pool without so many GPUs by node."""
    return pool.room(option.size, without) >= option.pods
