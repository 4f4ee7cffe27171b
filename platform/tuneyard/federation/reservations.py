"""Reservations of GPUs and of quota for asks that start later (EASY backfilling), and the earliest starts on which they are based.

An ask that must wait for running attempts gets a reservation: GPUs on nodes from its earliest start on, and as much quota of its team.
Backfilled asks may use reserved GPUs and quota until then. Without reserved quota the small asks of a team would take each GPU of quota as
it becomes free, and starve the large ask.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuneyard.federation.policy import Speed
from tuneyard.federation.pools import Key, Pool, Start
from tuneyard.federation.queues import Feasibility
from tuneyard.federation.teams import Limit, Teams
from tuneyard.federation.world import Ask, Running, expected_end


@dataclass(frozen=True)
class Reservation:
    """GPUs reserved for the ask `key` from `until` on. `needs`: reserved GPUs by node. `withheld`: the free ones among them, withheld from
    other asks. Attempts that are predicted to end by `lent_until` may use all of them before."""

    key: Key
    pool: Pool
    until: float
    needs: Mapping[str, int] = field(hash=False)
    withheld: Mapping[str, int] = field(hash=False)
    lent_until: float


@dataclass
class _Quota:
    """Reserved quota that is lent to attempts which end by `until`. Attempts that end later may take `spare` GPUs at most."""

    gpus: int
    until: float
    spare: float


@dataclass
class Reservations:
    """The reservations of one cycle: of GPUs, and of quota by limit and SKU."""

    teams: Teams
    gpus: list[Reservation] = field(default_factory=list)
    quota: dict[tuple[Limit, str], list[_Quota]] = field(default_factory=dict)
    of_team: Counter[tuple[str, str]] = field(default_factory=Counter)
    """GPUs of quota by team and SKU."""

    def reserve(self, team: str, kept: Reservation, workers: int, now: float, lent_until: float = math.inf) -> None:
        """Reserve GPUs for an ask of a team, and quota for its workers, which is lent until `lent_until` at most."""
        self.gpus.append(kept)
        self.reserve_quota(team, kept.pool.sku.name, workers, kept.until, now, lent_until)

    # --- quota

    def reserve_quota(self, team: str, sku: str, gpus: int, until: float, now: float, lent_until: float = math.inf) -> None:
        """Reserve quota for an ask of a team from `until` on, and lend it until `lent_until` at most.

        Attempts that have overrun their predictions count as holding their quota: an ask that relied on their end would take it from the
        ask for which it is reserved.
        """
        self.of_team[team, sku] += gpus
        for limit in self.teams.limits(team):
            spare = self.teams.left(limit, sku) + self.teams.gives_back(limit, sku, until, now) - gpus
            self.quota.setdefault((limit, sku), []).append(_Quota(gpus, min(until, lent_until), max(0, spare)))

    def has_quota_of(self, team: str) -> bool:
        """Whether quota is reserved for asks of a team."""
        return any(name == team for name, _ in self.of_team)

    def quota_start(self, team: str, sku: str, gpus: int, now: float) -> float | None:
        """When a team is predicted to have quota for `gpus` more GPUs beside all reserved quota. None: at no known time."""
        start = now
        for limit in self.teams.limits(team):
            reserved = sum(each.gpus for each in self.quota.get((limit, sku), ()))
            at = self.teams.limit_start(limit, sku, gpus + reserved, now)
            if at is None:
                return None
            start = max(start, at)
        return start

    def reserve_next_quota(self, team: str, skus: Sequence[str], gpus: int, now: float, lent: float = 1.0) -> None:
        """Reserve quota for an ask that lacks it, of the SKU that has it first, and lend it for a share `lent` of the time until then. A
        limit is reserved for one such ask in a cycle."""
        starts = [(start, sku) for sku in skus if (start := self.quota_start(team, sku, gpus, now)) is not None]
        if not starts:
            return
        start, sku = min(starts)
        if not any((limit, sku) in self.quota for limit in self.teams.limits(team)):
            self.reserve_quota(team, sku, gpus, start, now, now + lent * (start - now) if lent < 1 else math.inf)

    def allow(self, team: str, sku: str, gpus: int, ends: float) -> bool:
        """Whether a team may take a number of GPUs until `ends` without using reserved quota."""
        return all(
            each.until >= ends or each.spare >= gpus for limit in self.teams.limits(team) for each in self.quota.get((limit, sku), ())
        )

    def take(self, team: str, sku: str, gpus: int, ends: float) -> None:
        """Count GPUs that a team has taken until `ends`."""
        for limit in self.teams.limits(team):
            for each in self.quota.get((limit, sku), ()):
                if each.until < ends:
                    each.spare -= gpus


def start_in(
    pool: Pool, pods: int, size: int, now: float, *, claimed: Mapping[str, int] | None = None, ends: Iterable[Running] | None = None
) -> Start | None:
    """The earliest start of `pods` pods of `size` GPUs, after attempts of `ends` (default: all of the pool). None: no end makes room.

    `claimed`: GPUs by node that are reserved for other asks. An attempt that has overrun its prediction by some time is expected to need
    that time again.
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
                # A node may have more GPUs allocated than it has. The surplus does not become free.
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
    return Start(pool, latest_end(after, now), _take(pool, pods, size, free, gained), tuple(after))


def latest_end(after: Sequence[Running], now: float) -> float:
    """When the last of these attempts has ended. They come by predicted end: of overrun attempts, the first is expected to end last."""
    return max(expected_end(after[0].ends, now), expected_end(after[-1].ends, now)) if after else now


def reservation(key: Key, start: Start, *, lent_until: float = math.inf) -> Reservation:
    """Reserve the GPUs of a start for an ask. Free GPUs are withheld only where ending attempts do not make up for them. `lent_until`: as
    in `Reservation`, at most the start."""
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
    """Free GPUs by node that an attempt may not use if it ends at `until`."""
    found: dict[str, int] = {}
    for each in reservations:
        if each.pool is pool and each.lent_until < until:
            for name, gpus in each.withheld.items():
                found[name] = found.get(name, 0) + gpus
    return found


def claimed_in(pool: Pool, reservations: Sequence[Reservation], avoided: Mapping[str, int]) -> dict[str, int]:
    """GPUs by node of a pool that are reserved or avoided."""
    found = dict(avoided)
    for each in reservations:
        if each.pool is pool:
            for name, gpus in each.needs.items():
                found[name] = found.get(name, 0) + gpus
    return found


def earliest(
    ask: Ask, feasibility: Feasibility, now: float, reservations: Sequence[Reservation], pools: Iterable[tuple[Pool, float]], speed: Speed
) -> Start | None:
    """The start of an ask, with `Feasibility.first` workers, that is predicted to end first, over pools. With each pool comes the time from
    which its team has quota for it."""
    first = feasibility.first
    best: tuple[float, str, str] | None = None
    chosen: Start | None = None
    for pool, opens in pools:
        for size in feasibility.sizes(first, pool):
            start = next_start(pool, first // size, size, now, reservations, feasibility.avoided(pool))
            if start is not None:
                if opens > start.at:
                    start = replace(start, at=opens)
                ends = start.at + speed(ask, pool.sku.name, first)
                if best is None or (ends, pool.member, pool.sku.name) < best:
                    best, chosen = (ends, pool.member, pool.sku.name), start
                break
    return chosen


def next_start(
    pool: Pool, pods: int, size: int, now: float, reservations: Sequence[Reservation], avoided: Mapping[str, int]
) -> Start | None:
    """The earliest start in a pool beside reservations and avoided nodes. The pool remembers starts that neither of them touches."""
    claimed = claimed_in(pool, reservations, avoided)
    if claimed:
        return start_in(pool, pods, size, now, claimed=claimed)
    known, key = pool.answers.starts, (pods, size)
    if key not in known:
        known[key] = start_in(pool, pods, size, now)
    start = known[key]
    return replace(start, at=latest_end(start.after, now)) if start is not None else None


def _by_end(pool: Pool) -> Iterable[Running]:
    return (pool.attempts[job, task] for _, job, task in pool.running)


def _take(pool: Pool, pods: int, size: int, free: Mapping[str, int], gained: Mapping[str, int]) -> dict[str, int]:
    """GPUs by node for the gang: nodes that are free now come first, so that few nodes wait idle for the rest of the gang."""
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
