"""Preemption: which attempts stop so that an ask can start, and the GPUs reserved for the ask meanwhile.

Victims of lower priority cannot return before the ask that preempted them. Victims that return borrowed quota may rank before it: their
teams are below quota then. So freed GPUs are owed to the ask, which comes first within its priority until it starts (`Cycle`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tuneyard.federation.candidates import Candidates, Found, Rights
from tuneyard.federation.policy import Policy
from tuneyard.federation.pools import Pool, Pools
from tuneyard.federation.queues import Feasibility
from tuneyard.federation.reservations import Reservation, Reservations, claimed_in, reservation, start_in
from tuneyard.federation.teams import Teams
from tuneyard.federation.victims import Cost, Deficit, Search, Victims, cheapest_victims, least_cost_s, youngest_victims
from tuneyard.federation.world import PRIORITIES, Ask, Preempt, Running

_TIGHTEST = 4
"""Stopping attempts that are tried alone, the smallest sufficient first."""
_MOST_SEARCHES = 24
"""Pools in which victims are searched in one cycle, about. Asks that come later are considered in the next cycle."""
_MOST_REMEMBERED = 100_000


@dataclass(frozen=True)
class Freed:
    """GPUs that become free for an ask: by `victims`, or by attempts that stop already. Both fields are empty where none do."""

    victims: tuple[Preempt, ...] = ()
    kept: Reservation | None = None


@dataclass(frozen=True)
class _Failure:
    """A search without victims, after a number of changes of pools and teams. `claimed`: pools with reservations then. `until`: when the
    first attempt that was spared becomes a candidate."""

    pools: int
    teams: int
    claimed: frozenset[int]
    until: float


class Failures:
    """Kinds of asks for which no victims were found. They outlive a cycle: only pools that have changed since are searched again."""

    def __init__(self, pools: Pools, teams: Teams) -> None:
        self._pools = pools
        self._teams = teams
        self._known: dict[object, _Failure] = {}
        self._stamp = (-1, -1)
        self._grown: tuple[int, int, frozenset[str]] = (-1, -1, frozenset())

    def trim(self) -> None:
        """Forget all failures after a change of layout or of teams' rules, or where there are too many."""
        stamp = (self._pools.layout.version, self._teams.version)
        if stamp != self._stamp or len(self._known) > _MOST_REMEMBERED:
            self._known.clear()
            self._stamp = stamp

    def add(self, kind: object, claimed: Iterable[int], until: float) -> None:
        """No victims were found for asks of this kind, and none will be before `until` where nothing changes."""
        self._known[kind] = _Failure(self._pools.changes, self._teams.changes, frozenset(claimed), until)

    def last(self, kind: object, team: str, now: float) -> _Failure | None:
        """The last failure of a kind, where it still tells about pools that have not changed. `team`: the team of the ask, where its quota
        matters; else empty."""
        known = self._known.get(kind)
        if known is None or now >= known.until or (team and self._teams.changed_at(team) > known.teams):
            return None
        return known

    def open_pools(self, known: _Failure, team: str, pools: Sequence[Pool]) -> Sequence[Pool]:
        """Pools of `pools` where victims may be found since a failure."""
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


class Preemption:
    """Preemption in one cycle, which starts at `now`."""

    def __init__(self, policy: Policy, pools: Pools, teams: Teams, reservations: Reservations, failures: Failures, now: float) -> None:
        self.candidates = Candidates(policy, pools, teams, reservations, now)
        self.again_at = math.inf
        """When the next cycle may find victims that are spared in this one."""
        self.unfinished = False
        """The limit of searches was reached: the next cycle continues."""
        self._policy = policy
        self._pools = pools
        self._teams = teams
        self._reservations = reservations
        self._failures = failures
        self._now = now
        self._overhead_s = policy.grace_s + policy.restart_s
        self._choose: Callable[[Search], Victims | None] = youngest_victims if policy.victims == "youngest" else cheapest_victims
        self._searches = 0
        self._without_stopping: set[object] = set()
        """Kinds of asks for which stopping attempts do not free enough."""
        self._without_victims: set[object] = set()
        """Kinds of asks for which no victims were found."""
        failures.trim()
        self._kept: Counter[int] = Counter()
        """GPUs by pool, free or of stopping attempts, that are reserved for preempting asks."""

    def is_possible(self, ask: Ask) -> bool:
        """Whether a search for victims makes sense now."""
        return self._is_now(self.candidates.exist_from(ask))

    def are_possible(self, asks: Sequence[Ask]) -> list[bool]:
        """`is_possible` of asks of one shape and priority."""
        alike = self.candidates.exist_for_shape(asks[0])
        if alike is not None:
            return [self._is_now(alike)] * len(asks)
        return [at == -math.inf or self._is_now(at) for at in map(self.candidates.exist_for_team, asks)]

    def _is_now(self, at: float) -> bool:
        if at > self._now:
            self.again_at = min(self.again_at, at)
        return at <= self._now

    def free(self, ask: Ask, feasibility: Feasibility) -> Freed:
        """Free GPUs for the smallest gang of an ask. No attempt becomes a victim where stopping attempts free enough."""
        if self._teams[ask.team].team.closed:
            return Freed()
        pools = [pool for pool in feasibility.allowed if pool.usable]
        rights = self.candidates.rights(ask)
        kind, team = (feasibility, rights), rights.quota_team
        if self._pools.stopping and kind not in self._without_stopping:
            kept = self._by_stopping(ask, feasibility, pools)
            if kept is not None:
                return self._keep(Freed(kept=kept))
            self._without_stopping.add(kind)
        if kind in self._without_victims:
            return Freed()
        last = self._failures.last(kind, team, self._now)
        open_pools = self._failures.open_pools(last, team, pools) if last is not None else pools
        if open_pools and self._searches >= _MOST_SEARCHES:
            self.unfinished = True
            return Freed()
        best, settles_at = self._cheapest(ask, rights, feasibility, open_pools)
        if best is None:
            self._without_victims.add(kind)
            settles_at = min(settles_at, last.until) if last is not None else settles_at
            if not (team and self._reservations.has_quota_of(team)):  # which may be free in the next cycle
                self._failures.add(kind, {each.pool.index for each in self._reservations.gpus}, settles_at)
            self.again_at = min(self.again_at, settles_at)
            return Freed()
        return self._keep(self._preempted(ask, rights, feasibility, *best))

    def _preempted(self, ask: Ask, rights: Rights, feasibility: Feasibility, victims: Victims, pool: Pool, size: int) -> Freed:
        gone = [replace(attempt, stopping=True, ends=self._now + self._policy.grace_s) for attempt in victims.attempts]
        stopping = [*stopping_in(pool), *(each for each in gone if (each.cluster, each.sku) == (pool.member, pool.sku.name))]
        claimed = claimed_in(pool, self._reservations.gpus, feasibility.avoided(pool))
        start = start_in(pool, ask.smallest(pool.sku.name) // size, size, self._now, claimed=claimed, ends=stopping)
        return Freed(
            victims=tuple(
                Preempt(victim=victim, ask=ask, reason=why_preempted(ask, victim, self._now, self._policy, has_starved=rights.has_starved))
                for victim in victims.attempts
            ),
            kept=reservation((ask.job, ask.task), start) if start is not None else None,
        )

    def _keep(self, freed: Freed) -> Freed:
        if freed.kept is not None:
            self._kept[freed.kept.pool.index] += sum(freed.kept.needs.values())
        return freed

    # --- victims

    def _cheapest(
        self, ask: Ask, rights: Rights, feasibility: Feasibility, pools: Sequence[Pool]
    ) -> tuple[tuple[Victims, Pool, int] | None, float]:
        """The cheapest victims of all pools, their pool and the size of its pods; and when spared attempts become candidates.

        Pools come by the lower bound of their costs, until no bound is below the best cost. `youngest` takes the first pool with victims.
        """
        free = self._pools.free_gpus()
        takes_first = self._policy.victims == "youngest"
        bounds = []
        settles_at = math.inf
        for pool in pools:
            deficits = self.candidates.deficits(ask, pool.sku.name)
            found = self.candidates.in_pool(ask, rights, pool)
            if deficits:
                found = self.candidates.with_other_pools(found, ask, rights, pool, deficits)
            settles_at = min(settles_at, found.settles_at)
            if found.attempts:
                have = int(free[pool.index]) + pool.stopping
                least_s = least_cost_s(found.attempts, max(1, ask.smallest(pool.sku.name) - have), self._now, self._overhead_s)
                if least_s < math.inf:
                    bounds.append((0.0 if takes_first else least_s, pool.member, pool.sku.name, pool, found, deficits))
        best: tuple[Victims, Pool, int] | None = None
        for least_s, _, _, pool, found, deficits in sorted(bounds, key=lambda each: each[:3]):
            if best is not None and (takes_first or least_s >= best[0].cost[0]):
                break
            below = best[0].cost if best is not None else None
            cheaper = self._search_in(pool, ask, feasibility, found, deficits, below)
            if cheaper is not None:
                best = (cheaper[0], pool, cheaper[1])
        return best, settles_at

    def _search_in(
        self, pool: Pool, ask: Ask, feasibility: Feasibility, candidates: Found, deficits: Sequence[Deficit], below: Cost | None
    ) -> tuple[Victims, int] | None:
        """The cheapest victims in one pool, and the largest size of pods for which there are any."""
        self._searches += 1
        workers = ask.smallest(pool.sku.name)
        leaving: Counter[str] = Counter()
        for each in stopping_in(pool):
            leaving.update(each.nodes)
        claimed = claimed_in(pool, self._reservations.gpus, feasibility.avoided(pool))
        for size in feasibility.sizes(workers, pool):
            search = Search(
                pool=pool,
                pods=workers // size,
                size=size,
                candidates=candidates.attempts,
                now=self._now,
                claimed=claimed,
                leaving=leaving,
                borrowed=candidates.borrowed,
                reclaimed=candidates.reclaimed,
                deficits=deficits,
                overhead_s=self._overhead_s,
            )
            found = self._choose(search)
            if found is not None:
                return (found, size) if found.attempts and (below is None or found.cost < below) else None
        return None

    # --- attempts that stop already

    def _by_stopping(self, ask: Ask, feasibility: Feasibility, pools: Sequence[Pool]) -> Reservation | None:
        """GPUs that stopping attempts free, where these are enough: of the pool with least to spare, which leaves large pools to large
        asks."""
        free = self._pools.free_gpus()
        room = [(int(free[pool.index]) + pool.stopping - self._kept[pool.index], pool.member, pool.sku.name, pool) for pool in pools]
        for _, _, sku, pool in sorted((each for each in room if each[0] >= ask.smallest(each[2])), key=lambda each: each[:3]):
            workers = ask.smallest(sku)
            if not (pool.stopping or self._teams.gets_back(ask.team, sku)) or self.candidates.deficits(ask, sku):
                continue
            claimed = claimed_in(pool, self._reservations.gpus, feasibility.avoided(pool))
            stopping = stopping_in(pool)
            enough = sorted((each for each in stopping if each.gpus >= workers), key=lambda each: (each.gpus, each.ends, each.key))
            for going in (*([each] for each in enough[:_TIGHTEST]), stopping):
                for size in feasibility.sizes(workers, pool):
                    start = start_in(pool, workers // size, size, self._now, claimed=claimed, ends=going)
                    if start is not None:
                        return reservation((ask.job, ask.task), start)
        return None


def why_preempted(ask: Ask, victim: Running, now: float, policy: Policy, *, has_starved: bool) -> str:
    """Why an ask preempts an attempt, and what the attempt loses, for people."""
    unsaved_s = victim.lost_s(now)
    whole_s = unsaved_s + victim.gpus * (policy.grace_s + policy.restart_s)
    lost = f"; it loses {whole_s / 3600:.2f} GPU-hours, {unsaved_s / 3600:.2f} of them since its last checkpoint"
    if PRIORITIES[victim.priority] < PRIORITIES[ask.priority]:
        return f"{ask.job} has priority {ask.priority}{lost}"
    if has_starved:
        return f"{ask.job} has waited for {(now - ask.created) / 3600:.0f} h for {ask.smallest(victim.sku)} GPUs at once{lost}"
    return f"team {ask.team} reclaims quota that team {victim.team} has borrowed, for {ask.job}{lost}"


def stopping_in(pool: Pool) -> list[Running]:
    """Attempts of a pool that are being preempted."""
    return [attempt for attempt in pool.attempts.values() if attempt.stopping] if pool.stopping else []
