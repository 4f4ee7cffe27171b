"""When a gang could start, by the predicted ends of what runs, and GPUs kept for it until then (EASY backfilling)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuneyard.federation.fitting import expected_end
from tuneyard.federation.policy import Speed
from tuneyard.federation.pools import Key, Pool, Pools
from tuneyard.federation.shapes import Shape
from tuneyard.federation.world import Ask, Running


@dataclass(frozen=True)
class Start:
    """When a pool has room for a gang: `takes` GPUs by node, after the attempts `after` have ended, the last of them being the last."""

    pool: Pool
    at: float
    takes: Mapping[str, int] = field(hash=False)
    after: tuple[Running, ...] = ()


@dataclass(frozen=True)
class Reservation:
    """GPUs kept for `key` until `until`: `withheld` of those that are free now; `needs` of those that will be free then. Who is predicted
    to end by `lent_until` may have them meanwhile."""

    key: Key
    pool: Pool
    until: float
    needs: Mapping[str, int] = field(hash=False)
    withheld: Mapping[str, int] = field(hash=False)
    lent_until: float


def start_in(
    pool: Pool, pods: int, size: int, now: float, *, claimed: Mapping[str, int] | None = None, ends: Iterable[Running] | None = None
) -> Start | None:
    """The earliest start of `pods` pods of `size` GPUs, or None if not even the end of all of `ends` (default: all that runs) makes room.

    `claimed`: GPUs by node that are promised to others. An attempt that has overrun its prediction is taken to need as long again as it
    has overrun.
    """
    claims = claimed or {}
    free = {name: pool.free[name] - gpus for name, gpus in claims.items() if name in pool.free}
    gained: dict[str, int] = {}
    have = pool.room(size, claims)
    after: list[Running] = []
    if have < pods:
        candidates: Iterable[Running] = _by_end(pool) if ends is None else sorted(ends, key=lambda a: (a.ends, a.job, a.task))
        for attempt in candidates:
            useful = False
            for name, gpus in attempt.nodes.items():
                if name not in pool.base:
                    continue
                before = free.get(name, pool.free[name])
                # A node that more is held on than it has gives back less than what ends there.
                surplus = pool.held.get(name, 0) - gained.get(name, 0) - pool.base[name]
                given = max(0, gpus - max(0, surplus))
                gained[name] = gained.get(name, 0) + gpus
                free[name] = before + given
                more = max(0, free[name]) // size - max(0, before) // size
                have += more
                useful = useful or given > 0
            if useful:
                after.append(attempt)
            if have >= pods:
                break
    if have < pods:
        return None
    return Start(pool, _latest(after, now), _take(pool, pods, size, free, gained), tuple(after))


def _latest(after: Sequence[Running], now: float) -> float:
    """When the last of these has ended, which come by predicted end: of those that have overrun, it is the first that needs longest."""
    return max(expected_end(after[0].ends, now), expected_end(after[-1].ends, now)) if after else now


def reservation(key: Key, start: Start, *, lent_until: float = math.inf) -> Reservation:
    """Keep for `key` what the start needs. What is free now and will not be needed then, others may have for longer. Until the start at
    most, others may have all of it who are predicted to end by `lent_until`."""
    freed: dict[str, int] = {}
    for attempt in start.after:
        for name, gpus in attempt.nodes.items():
            freed[name] = freed.get(name, 0) + gpus
    withheld = {
        name: min(start.pool.free[name], gpus - freed.get(name, 0))
        for name, gpus in start.takes.items()
        if gpus > freed.get(name, 0) and start.pool.free[name] > 0
    }
    return Reservation(key, start.pool, start.at, start.takes, withheld, min(start.at, lent_until))


def withheld_in(pool: Pool, reservations: Sequence[Reservation], until: float) -> dict[str, int]:
    """GPUs by node that are free and kept from whoever ends after `until`."""
    found: dict[str, int] = {}
    for each in reservations:
        if each.pool is pool and each.lent_until < until:
            for name, gpus in each.withheld.items():
                found[name] = found.get(name, 0) + gpus
    return found


def claimed_in(pool: Pool, reservations: Sequence[Reservation], avoided: Mapping[str, int]) -> dict[str, int]:
    """GPUs by node that reservations take of a pool, or that are to be avoided."""
    found = dict(avoided)
    for each in reservations:
        if each.pool is pool:
            for name, gpus in each.needs.items():
                found[name] = found.get(name, 0) + gpus
    return found


class Starts:
    """Earliest starts by pool, remembered until something changes in the pool."""

    def __init__(self, pools: Pools, speed: Speed) -> None:
        self._pools = pools
        self._speed = speed
        self._known: dict[tuple[int, int, int], tuple[int, Start | None]] = {}

    def earliest(self, ask: Ask, shape: Shape, now: float, reservations: Sequence[Reservation], pools: Iterable[Pool]) -> Start | None:
        """Where the first world that is possible would end soonest among these pools, by what is predicted."""
        first = shape.first(self._pools)
        best: tuple[float, str, str] | None = None
        chosen: Start | None = None
        for pool in pools:
            for size in shape.sizes(first, pool):
                start = self.start_in(pool, first // size, size, now, reservations, shape.avoided(self._pools, pool))
                if start is not None:
                    ends = start.at + self._speed(ask, pool.sku.name, first)
                    if best is None or (ends, pool.member, pool.sku.name) < best:
                        best, chosen = (ends, pool.member, pool.sku.name), start
                    break
        return chosen

    def start_in(
        self, pool: Pool, pods: int, size: int, now: float, reservations: Sequence[Reservation], avoided: Mapping[str, int]
    ) -> Start | None:
        """The earliest start in one pool, without what reservations take and without nodes to avoid."""
        claimed = claimed_in(pool, reservations, avoided)
        if claimed:
            return start_in(pool, pods, size, now, claimed=claimed)
        key = (pool.index, pods, size)
        known = self._known.get(key)
        if known is None or known[0] != pool.version:
            known = self._known[key] = (pool.version, start_in(pool, pods, size, now))
        start = known[1]
        if start is None:
            return None
        return replace(start, at=_latest(start.after, now))


def _by_end(pool: Pool) -> Iterable[Running]:
    return (pool.attempts[job, task] for _, job, task in pool.running)


def _take(pool: Pool, pods: int, size: int, free: Mapping[str, int], gained: Mapping[str, int]) -> dict[str, int]:
    """Nodes for the gang: those first that are free already, so that what is kept idle is kept for long on few."""
    taken: dict[str, int] = {}
    left = pods
    for name in sorted(pool.free, key=lambda name: (gained.get(name, 0) > 0, -pool.free[name], name)):
        count = min(left, max(0, free.get(name, pool.free[name])) // size)
        if count:
            taken[name] = count * size
            left -= count
            if not left:
                break
    return taken
