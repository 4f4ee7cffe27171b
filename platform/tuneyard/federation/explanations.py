"""Explanations for people: the reasons of a waiting task by member, the reason of an infeasible task, and the gains of a placement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tuneyard.federation.placement import is_near
from tuneyard.federation.policy import Policy
from tuneyard.federation.pools import Pool, Pools
from tuneyard.federation.queues import Feasibility
from tuneyard.federation.reservations import Reservation, next_start, withheld_in
from tuneyard.federation.teams import Teams
from tuneyard.federation.world import FITS_NEVER, Ask, Place, Running, Wait, duration_words

_LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
_NAMED = 3
"""Jobs that are named. The others are counted."""


@dataclass(frozen=True)
class Explanations:
    """Explanations at `now`, as of the last cycle, which made `reservations`."""

    policy: Policy
    pools: Pools
    teams: Teams
    reservations: Sequence[Reservation]
    now: float

    def why_waiting(self, ask: Ask, feasibility: Feasibility) -> Wait:
        """Reasons by member. `starts`: when a member is first predicted to have room."""
        closed = self.teams[ask.team].team.closed
        if closed:
            return Wait(ask=ask, reasons={}, held=closed)
        infeasible = why_infeasible(ask, feasibility, self.teams) if self.pools.members else ""
        if infeasible:
            prefix = "" if feasibility.least_by_sku else "no cluster could ever run it: "
            return Wait(ask=ask, reasons={}, held=prefix + infeasible)
        reasons: dict[str, list[str]] = {}
        times: list[float] = []
        for name in sorted(self.pools.members):
            if ask.clusters and name not in ask.clusters:
                continue
            here = sorted((pool for pool in feasibility.allowed if pool.member == name), key=lambda pool: pool.sku.name)
            member = self.pools.members[name]
            if not member.usable:
                reasons[name] = [member.why_not]
            else:
                whys = [self._why(ask, feasibility, pool) for pool in here]
                times += [start for _, start in whys if start is not None]
                reasons[name] = [why for why, _ in whys]
                reasons[name] += sorted(_too_small(ask, pool) for pool in feasibility.too_small() if pool.member == name)
                reasons[name] = reasons[name] or [f"has none of {', '.join(ask.skus)}"]
        for name in ask.clusters:
            reasons.setdefault(name, ["there is no such cluster"])
        own = next((each for each in self.reservations if each.key == (ask.job, ask.task)), None)
        starts = own.until if own is not None else min(times, default=None)
        unknown = "" if ask.least else ask.fit
        lines = {name: "; ".join(parts) for name, parts in reasons.items()}
        return Wait(ask=ask, reasons=lines, held=self._reclaim(ask, feasibility), starts=starts, unchecked=unknown)

    def _reclaim(self, ask: Ask, feasibility: Feasibility) -> str:
        """When an ask within its team's quota preempts attempts that borrow. Empty: it has none to preempt."""
        if not self.policy.preempts or not any(self._may_reclaim(ask, sku) for sku in feasibility.skus):
            return ""
        patient_at = ask.created + self.policy.settled_s
        if self.now < patient_at:
            return f"team {ask.team} is within its quota: it reclaims GPUs that other teams borrow from {_clock(patient_at)} on"
        late_s = min(self.policy.settled_s, self.policy.settled_late_s)
        return f"team {ask.team} is within its quota: it reclaims GPUs that other teams have borrowed for {late_s / 60:.0f} min"

    def _may_reclaim(self, ask: Ask, sku: str) -> bool:
        return self.teams.within_quota(ask.team, sku, ask.smallest(sku)) and self.teams.has_lent(ask.team, sku, ask.priority)

    def _why(self, ask: Ask, feasibility: Feasibility, pool: Pool) -> tuple[str, float | None]:
        """Why an ask does not start in a pool now, and when it could."""
        sku = pool.sku.name
        if sum(pool.total.values()) < ask.fewest(sku):
            return _too_small(ask, pool), None
        least = ask.smallest(sku)
        sizes = feasibility.sizes(least, pool)
        if not sizes:
            groups = f" in groups of {ask.unit}" if 1 < ask.unit < least else ""
            return f"{least} workers do not divide{groups} over machines of {pool.sku.gpus_per_node} {sku}", None
        size = sizes[0]
        pods = least // size
        avoided = feasibility.avoided(pool)
        free = {name: gpus for name, gpus in pool.free.items() if name not in avoided}
        have = _count(free, least, size) + _torn(ask, free, least)
        room = self.teams.room(ask.team, sku)
        if room.gpus < least:
            return f"{have}; {room.why}", None
        if sum(gpus // size for gpus in pool.total.values()) < pods:
            return f"{have}; it has {sum(pool.total.values())} {sku} in all", None
        kept = withheld_in(pool, self.reservations, float("inf"))
        others = [each for each in self.reservations if each.pool is pool and each.key != (ask.job, ask.task)]
        if sum(gpus // size for gpus in free.values()) >= pods:
            if kept and others:
                first = min(others, key=lambda each: each.until)
                return f"{have}, reserved for {first.key[0]}, which starts at about {_clock(first.until)}", None
            return f"{have}: considered in the next cycle", None
        start = next_start(pool, pods, size, self.now, others, avoided)
        if start is None:
            promised = f"; the rest is reserved for {_names([each.key[0] for each in others])}" if others else ""
            return have + promised, None
        return f"{have}, enough at about {_clock(start.at)} when {_ending(start.after)}", start.at


def why_infeasible(ask: Ask, feasibility: Feasibility, teams: Teams) -> str:
    """Why an ask could not run on empty members, and a remedy. Empty: it could."""
    least = feasibility.least_by_sku
    if not least:
        return _why_no_member(ask, feasibility)
    if teams.could_ever_run(ask.team, least):
        return ""
    allowed = {sku: teams.most(ask.team, sku) for sku in feasibility.skus}
    limits = ", ".join(f"{most:.0f} {sku}" for sku, most in allowed.items() if most < math.inf)
    by_quota = f"team {ask.team} may hold at most {limits} including borrowed quota"
    asked = min(ask.smallest(sku) for sku in allowed)
    small = [sku for sku, most in allowed.items() if most >= asked]
    if not small:
        return f"{by_quota}, and {asked} are asked for: ask for fewer, or raise its quota"
    raised = " or ".join(sorted(least))
    return f"{by_quota}, and no cluster has room for {asked} {' or '.join(small)}: ask for fewer, or raise its quota of {raised}"


def placement_words(place: Place, pools: Pools) -> str:
    """Size, duration, price and data of a placement."""
    parts = [f"{place.workers} x {place.sku}", duration_words(place.seconds, place.ask.basis)]
    pool = pools.get(place.cluster, place.sku)
    if pool is not None and pool.sku.price_per_gpu_hour:
        costs = "costs" if place.ask.basis != "assumed" else "would then cost"
        parts.append(f"{costs} {pool.sku.price_per_gpu_hour * place.workers * place.seconds / 3600:.2f}")
    if pool is not None and place.ask.near:
        parts.append("its data is near" if is_near(place.ask, pool.near) else "its data is far")
    return ", ".join(parts)


def _why_no_member(ask: Ask, feasibility: Feasibility) -> str:
    no_fit = _why_no_fit(ask, feasibility)
    if no_fit:
        return no_fit
    allowed, least = feasibility.allowed, min(ask.worlds)
    wanted = f"{least} x {' or '.join(ask.skus) or 'any SKU'}"
    most: dict[str, int] = {}
    for pool in allowed:
        most[pool.sku.name] = max(most.get(pool.sku.name, 0), sum(pool.total.values()))
    have = ", ".join(f"{count} {name}" for name, count in sorted(most.items())) or f"none of {', '.join(ask.skus) or 'any SKU'}"
    reason = f"task {ask.task} needs {wanted} in one cluster, and the most that one has is {have}"
    others = [pool for pool in feasibility.layout.pools if pool.present and pool not in allowed and feasibility.fits(pool, least)]
    elsewhere = sorted({pool.sku.name for pool in others if _holds(pool, feasibility, least)})
    if elsewhere:
        return f"{reason}; allow {' or '.join(elsewhere)}, or ask for fewer workers"
    largest = max((_largest(pool, ask.unit) for pool in allowed), default=0)
    return f"{reason}; ask for at most {largest} workers" if largest else reason


def _why_no_fit(ask: Ask, feasibility: Feasibility) -> str:
    """Why the model fits on no member, by SKU, and a remedy. Empty: memory is not the reason."""
    most: dict[str, int] = {}
    for pool in (*feasibility.allowed, *feasibility.too_small()):
        gpus = min(max(ask.worlds), sum(pool.total.values()))
        most[pool.sku.name] = max(most.get(pool.sku.name, 0), gpus)
    if not most or any(gpus >= ask.fewest(sku) for sku, gpus in most.items()):
        return ""
    reason = "; ".join(_does_not_fit(ask, sku, gpus) for sku, gpus in sorted(most.items()))
    return f"the model of task {ask.task} {reason}" + (f"; what helps: {ask.fit}" if ask.fit else "")


def _too_small(ask: Ask, pool: Pool) -> str:
    return f"the model {_does_not_fit(ask, pool.sku.name, min(max(ask.worlds), sum(pool.total.values())))}"


def _does_not_fit(ask: Ask, sku: str, gpus: int) -> str:
    fewest = ask.fewest(sku)
    if fewest == FITS_NEVER:
        return f"does not fit on {sku}" if sku != "cpu" else "is too large for cpu, unless its task names cpu"
    return f"does not fit on {gpus} x {sku}: it needs at least {fewest}"


def _count(free: dict[str, int], least: int, size: int) -> str:
    """Free GPUs, in the unit of the ask: pods or GPUs."""
    if size > 1 and least > size:
        whole = sum(gpus // size for gpus in free.values())
        return f"{whole} of {least // size} pods of {size} GPUs find room ({sum(free.values())} GPUs free)"
    most = max(free.values(), default=0)
    total = sum(free.values())
    if total < least:
        return f"{total} of {least} GPUs free"
    return f"{total} GPUs free" if size <= most else f"{total} GPUs free, at most {most} of {size} on one machine"


def _torn(ask: Ask, free: dict[str, int], least: int) -> str:
    """Why free GPUs are not enough: no node has enough of them for a group of ranks that share weights. Empty: some node has."""
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
        return "a time after the year 9999"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _holds(pool: Pool, feasibility: Feasibility, workers: int) -> bool:
    return any(sum(gpus // size for gpus in pool.total.values()) * size >= workers for size in feasibility.sizes(workers, pool))


def _largest(pool: Pool, unit: int) -> int:
    return sum(gpus // unit * unit for gpus in pool.total.values())
