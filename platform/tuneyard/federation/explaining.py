"""Why a task waits, member by member, in words: what is free, who is in the way, and when that is predicted to change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from tuneyard.federation.pools import Pool, Pools
from tuneyard.federation.reserving import Reservation, Starts, withheld_in
from tuneyard.federation.shapes import Shape
from tuneyard.federation.teams import Teams
from tuneyard.federation.world import FITS_NEVER, Ask, Running, Wait

_LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
_NAMED = 3
"""How many jobs are named; the rest are counted."""


class Explainer:
    def __init__(self, pools: Pools, teams: Teams, starts: Starts, reservations: Sequence[Reservation]) -> None:
        self._pools = pools
        self._teams = teams
        self._starts = starts
        self._reservations = reservations

    def wait(self, ask: Ask, shape: Shape, now: float) -> Wait:
        """Reasons by member; `starts` is the earliest time at which a member is predicted to have room."""
        closed = self._teams[ask.team].team.closed
        if closed:
            return Wait(ask=ask, reasons={}, held=closed)
        never = self.why_never(ask, shape) if self._pools.members else ""
        if never:
            prefix = "" if shape.ever(self._pools) else "no cluster could ever run it: "
            return Wait(ask=ask, reasons={}, held=prefix + never)
        allowed, too_small = shape.allowed(self._pools), shape.too_small(self._pools)
        reasons: dict[str, list[str]] = {}
        times: list[float] = []
        for name in sorted(self._pools.members):
            if ask.clusters and name not in ask.clusters:
                continue
            here = sorted((pool for pool in allowed if pool.member == name), key=lambda pool: pool.sku.name)
            member = self._pools.members[name]
            if not member.usable:
                reasons[name] = [member.why_not]
            else:
                reasons[name] = [self._why(ask, shape, pool, now, times) for pool in here]
                reasons[name] += sorted(_too_small(ask, pool) for pool in too_small if pool.member == name)
                reasons[name] = reasons[name] or [f"has none of {', '.join(ask.skus)}"]
        for name in ask.clusters:
            reasons.setdefault(name, ["there is no such cluster"])
        own = next((each for each in self._reservations if each.key == (ask.job, ask.task)), None)
        starts = own.until if own is not None else min(times, default=None)
        unknown = "" if ask.least else ask.fit
        return Wait(ask=ask, reasons={name: "; ".join(parts) for name, parts in reasons.items()}, starts=starts, unchecked=unknown)

    def why_never(self, ask: Ask, shape: Shape) -> str:
        """Why it could not run even if all members were empty, and what would help; an empty text where it could."""
        least = shape.least_by_sku(self._pools)
        if not least:
            return self._why_no_member(ask, shape)
        allowed = {sku: self._teams.most(ask.team, sku) for sku in shape.skus(self._pools)}
        if any(allowed[sku] >= workers for sku, workers in least.items()):
            return ""
        limits = ", ".join(f"{most:.0f} {sku}" for sku, most in allowed.items() if most < math.inf)
        by_quota = f"team {ask.team} may hold at most {limits} with what it may borrow"
        asked = min(ask.smallest(sku) for sku in allowed)
        small = [sku for sku, most in allowed.items() if most >= asked]
        if not small:
            return f"{by_quota}, and {asked} are asked for: ask for fewer, or raise its quota"
        raised = " or ".join(sorted(least))
        return f"{by_quota}, and no cluster has room for {asked} {' or '.join(small)}: ask for fewer, or raise its quota of {raised}"

    def _why_no_member(self, ask: Ask, shape: Shape) -> str:
        """What no member has, and what would help."""
        allowed = shape.allowed(self._pools)
        no_fit = self._why_no_fit(ask, shape)
        if no_fit:
            return no_fit
        least = min(ask.worlds)
        wanted = f"{least} x {' or '.join(ask.skus) or 'any SKU'}"
        most: dict[str, int] = {}
        for pool in allowed:
            most[pool.sku.name] = max(most.get(pool.sku.name, 0), sum(pool.total.values()))
        have = ", ".join(f"{count} {name}" for name, count in sorted(most.items())) or f"none of {', '.join(ask.skus) or 'any SKU'}"
        reason = f"task {ask.task} needs {wanted} in one cluster, and the most that one has is {have}"
        elsewhere = sorted(
            {
                pool.sku.name
                for pool in self._pools.all
                if pool.present
                and pool not in allowed
                and shape.fits(pool, least)
                and shape.sizes(least, pool)
                and _holds(pool, shape, least)
            }
        )
        if elsewhere:
            return f"{reason}; allow {' or '.join(elsewhere)}, or ask for fewer workers"
        largest = max((_largest(pool, ask.unit) for pool in allowed), default=0)
        return f"{reason}; ask for at most {largest} workers" if largest else reason

    def _why_no_fit(self, ask: Ask, shape: Shape) -> str:
        """That the model fits on no member, by SKU, and what would help. An empty text where memory is not the reason."""
        most: dict[str, int] = {}
        for pool in (*shape.allowed(self._pools), *shape.too_small(self._pools)):
            gpus = min(max(ask.worlds), sum(pool.total.values()))
            most[pool.sku.name] = max(most.get(pool.sku.name, 0), gpus)
        if not most or any(gpus >= ask.fewest(sku) for sku, gpus in most.items()):
            return ""
        reason = "; ".join(_does_not_fit(ask, sku, gpus) for sku, gpus in sorted(most.items()))
        return f"the model of task {ask.task} {reason}" + (f"; what helps: {ask.fit}" if ask.fit else "")

    def _why(self, ask: Ask, shape: Shape, pool: Pool, now: float, times: list[float]) -> str:
        sku = pool.sku.name
        if sum(pool.total.values()) < ask.fewest(sku):
            return _too_small(ask, pool)
        least = ask.smallest(sku)
        sizes = shape.sizes(least, pool)
        if not sizes:
            groups = f" in groups of {ask.unit}" if 1 < ask.unit < least else ""
            return f"{least} workers do not divide{groups} over machines of {pool.sku.gpus_per_node} {sku}"
        size = sizes[0]
        pods = least // size
        avoided = shape.avoided(self._pools, pool)
        free = {name: gpus for name, gpus in pool.free.items() if name not in avoided}
        have = _count(free, least, size) + _torn(ask, free, least)
        room = self._teams.room(ask.team, sku)
        if room.gpus < least:
            return f"{have}; {room.why}"
        if sum(gpus // size for gpus in pool.total.values()) < pods:
            return f"{have}; it has {sum(pool.total.values())} {sku} in all"
        kept = withheld_in(pool, self._reservations, float("inf"))
        others = [each for each in self._reservations if each.pool is pool and each.key != (ask.job, ask.task)]
        if sum(gpus // size for gpus in free.values()) >= pods:
            if kept and others:
                first = min(others, key=lambda each: each.until)
                return f"{have}, kept for {first.key[0]}, which is to start at about {_clock(first.until)}"
            return f"{have}: looked at in the next cycle"
        start = self._starts.start_in(pool, pods, size, now, others, shape.avoided(self._pools, pool))
        if start is None:
            return f"{have}; the rest is promised to {_names([each.key[0] for each in others])}" if others else have
        times.append(start.at)
        return f"{have}, enough at about {_clock(start.at)} when {_ending(start.after)}"


def _too_small(ask: Ask, pool: Pool) -> str:
    return f"the model {_does_not_fit(ask, pool.sku.name, min(max(ask.worlds), sum(pool.total.values())))}"


def _does_not_fit(ask: Ask, sku: str, gpus: int) -> str:
    fewest = ask.fewest(sku)
    if fewest == FITS_NEVER:
        return f"does not fit on {sku}" if sku != "cpu" else "is too large for cpu, unless its task names cpu"
    return f"does not fit on {gpus} x {sku}: it needs at least {fewest}"


def _count(free: dict[str, int], least: int, size: int) -> str:
    """What is free, in the terms in which it is asked for."""
    if size > 1 and least > size:
        whole = sum(gpus // size for gpus in free.values())
        return f"{whole} of {least // size} pods of {size} GPUs find room ({sum(free.values())} GPUs free)"
    most = max(free.values(), default=0)
    total = sum(free.values())
    if total < least:
        return f"{total} of {least} GPUs free"
    return f"{total} GPUs free" if size <= most else f"{total} GPUs free, at most {most} of {size} on one machine"


def _torn(ask: Ask, free: dict[str, int], least: int) -> str:
    """Why free GPUs are not enough, where they are on machines that would tear groups apart."""
    torn = not ask.engines and 1 < ask.unit < least <= sum(free.values())
    return f"; groups of {ask.unit} GPUs share each weight, and stay on one machine" if torn else ""


def _ending(after: Sequence[Running]) -> str:
    names = [attempt.job for attempt in sorted(after, key=lambda attempt: (-attempt.ends, attempt.job))]
    stopping = all(attempt.stopping for attempt in after)
    ends = "stops" if stopping else "ends"
    return f"{_names(names)} {ends if len(set(names)) == 1 else ends[:-1]}"


def _names(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - _NAMED
    return ", ".join(distinct[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _clock(at: float) -> str:
    if not at < _LATEST:
        return "a time that nobody will see"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _holds(pool: Pool, shape: Shape, workers: int) -> bool:
    return any(sum(gpus // size for gpus in pool.total.values()) * size >= workers for size in shape.sizes(workers, pool))


def _largest(pool: Pool, unit: int) -> int:
    return sum(gpus // unit * unit for gpus in pool.total.values())
