"""Who may ask others to go, and whom: by priority, or to take back what others have borrowed of a team's own quota.

No circle can come of it: whoever goes for a higher priority cannot come back against it; and who takes back stays within its quota, so
that nobody can take back from it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tuneyard.federation.policy import Policy
from tuneyard.federation.pools import Pool, Pools
from tuneyard.federation.reserving import Reservation, claimed_in, reservation, start_in
from tuneyard.federation.shapes import Shape
from tuneyard.federation.teams import Teams
from tuneyard.federation.victims import Deficit, Search, Victims, by_age, cheapest_victims, least_cost_s
from tuneyard.federation.world import PRIORITIES, Ask, Preempt, Running

_MOST_IN_A_CYCLE = 32
"""How many asks look for victims in one cycle: those behind look in the next."""


@dataclass(frozen=True)
class Making:
    """`going`: who is asked to go; `kept`: the room they make, kept for the ask. Both empty: nobody may be asked."""

    going: tuple[Preempt, ...] = ()
    kept: Reservation | None = None


@dataclass
class _Census:
    """What the running attempts amount to, for a quick no."""

    below: Counter[int] = field(default_factory=Counter)
    """Attempts that may be asked to go, by priority."""
    stopping: int = 0


class Preempting:
    def __init__(self, policy: Policy, pools: Pools, teams: Teams) -> None:
        self._policy = policy
        self._pools = pools
        self._teams = teams
        self._census = _Census()
        self._tries = 0
        self._known: dict[tuple[int, int], tuple[int, Sequence[Running]]] = {}

    def begin(self) -> None:
        """A new cycle."""
        self._tries = 0

    def count(self, attempt: Running, sign: int) -> None:
        """Keep count of who runs."""
        if attempt.stopping:
            self._census.stopping += sign
        elif attempt.preemptible:
            self._census.below[PRIORITIES[attempt.priority]] += sign

    def may(self, ask: Ask) -> bool:
        """Whether it is worth a look."""
        if not self._policy.preempts or self._tries >= _MOST_IN_A_CYCLE or ask.worlds[-1] == 0:
            return False
        if self._census.stopping:
            return True
        mine = PRIORITIES[ask.priority]
        lower = any(count for priority, count in self._census.below.items() if priority < mine)
        return lower or (self._takes_back(ask) and any(self._census.below.values()))

    def make_room(self, ask: Ask, shape: Shape, now: float, reservations: Sequence[Reservation]) -> Making:
        """Whom to ask to go, for the smallest world that would do; nobody where others that go already make the room."""
        self._tries += 1
        workers = ask.worlds[-1]
        pools = [pool for pool in shape.allowed(self._pools) if pool.usable and not self._teams[ask.team].team.closed]
        for pool in pools:
            kept = self._by_those_who_go(ask, shape, pool, workers, now, reservations)
            if kept is not None:
                return Making(kept=kept)
        best = self._cheapest(ask, shape, pools, workers, now, reservations)
        if best is None:
            return Making()
        victims, pool, size = best
        gone = [replace(attempt, stopping=True, ends=now + self._policy.grace_s) for attempt in victims.attempts]
        stopping = [*(each for each in pool.attempts.values() if each.stopping), *gone]
        start = start_in(pool, workers // size, size, now, claimed=claimed_in(pool, reservations), ends=stopping)
        kept = reservation((ask.job, ask.task), start) if start is not None else None
        return Making(tuple(Preempt(victim=victim, ask=ask, reason=self._why(ask, victim, now)) for victim in victims.attempts), kept)

    def _cheapest(
        self, ask: Ask, shape: Shape, pools: Sequence[Pool], workers: int, now: float, reservations: Sequence[Reservation]
    ) -> tuple[Victims, Pool, int] | None:
        """The cheapest victims of all pools: those pools first whose bound is least, until no bound beats what was found."""
        mine = PRIORITIES[ask.priority]
        free = self._pools.free_gpus()
        bounds = []
        for pool in pools:
            takes_back = self._teams.within_quota(ask.team, pool.sku.name, workers)
            candidates = self._lower(pool, mine) if not takes_back else sorted(self._candidates(ask, pool)[0], key=by_age)
            if candidates:
                least_s = least_cost_s(candidates, max(1, workers - int(free[pool.index])), now)
                if least_s < math.inf:
                    bounds.append((least_s, pool.member, pool.sku.name, pool))
        best: tuple[Victims, Pool, int] | None = None
        for least_s, _, _, pool in sorted(bounds, key=lambda each: each[:3]):
            if best is not None and least_s >= best[0].cost[0]:
                break
            for size in shape.sizes(workers, pool)[:1]:
                search = self._search(ask, pool, workers, size, now, reservations)
                found = cheapest_victims(search, best[0].cost if best is not None else None)
                if found is not None and found.attempts:
                    best = (found, pool, size)
        return best

    def _lower(self, pool: Pool, mine: int) -> Sequence[Running]:
        """Attempts of lower priority that may be asked to go, youngest checkpoint first; remembered until the pool changes."""
        known = self._known.get((pool.index, mine))
        if known is None or known[0] != pool.version:
            lower = [each for each in pool.attempts.values() if _may_go(each) and PRIORITIES[each.priority] < mine]
            known = self._known[pool.index, mine] = (pool.version, sorted(lower, key=by_age))
        return known[1]

    def _candidates(self, ask: Ask, pool: Pool) -> tuple[list[Running], frozenset[tuple[str, str]]]:
        """Who may be asked to go, and which of them only to give back what their teams have borrowed."""
        mine = PRIORITIES[ask.priority]
        candidates, taken_back = [], set()
        for attempt in pool.attempts.values():
            if not _may_go(attempt):
                continue
            if PRIORITIES[attempt.priority] < mine:
                candidates.append(attempt)
            elif PRIORITIES[attempt.priority] == mine and self._has_borrowed(ask, attempt):
                candidates.append(attempt)
                taken_back.add((attempt.job, attempt.task))
        return candidates, frozenset(taken_back)

    def _by_those_who_go(
        self, ask: Ask, shape: Shape, pool: Pool, workers: int, now: float, reservations: Sequence[Reservation]
    ) -> Reservation | None:
        """The room in this pool that is made by those who have been asked to go already, if it is enough."""
        if not pool.stopping:
            return None
        stopping = [attempt for attempt in pool.attempts.values() if attempt.stopping]
        if self._deficits(ask, pool, workers, stopping):
            return None
        for size in shape.sizes(workers, pool):
            start = start_in(pool, workers // size, size, now, claimed=claimed_in(pool, reservations), ends=stopping)
            if start is not None:
                return reservation((ask.job, ask.task), start)
        return None

    def _search(self, ask: Ask, pool: Pool, workers: int, size: int, now: float, reservations: Sequence[Reservation]) -> Search:
        taken_back: frozenset[tuple[str, str]] = frozenset()
        if self._teams.within_quota(ask.team, pool.sku.name, workers):
            candidates, taken_back = self._candidates(ask, pool)
        else:
            candidates = list(self._lower(pool, PRIORITIES[ask.priority]))
        givers = {attempt.team for attempt in candidates if (attempt.job, attempt.task) in taken_back}
        stopping = [attempt for attempt in pool.attempts.values() if attempt.stopping]
        return Search(
            pool=pool,
            pods=workers // size,
            size=size,
            candidates=candidates,
            now=now,
            claimed=claimed_in(pool, reservations),
            borrowed={team: self._teams.borrowed(team, pool.sku.name) for team in givers},
            taken_back=taken_back,
            deficits=self._deficits(ask, pool, workers, stopping),
        )

    def _deficits(self, ask: Ask, pool: Pool, workers: int, stopping: Sequence[Running]) -> list[Deficit]:
        found = []
        for teams, missing in self._teams.deficits(ask.team, pool.sku.name, workers):
            left = missing - sum(attempt.gpus for attempt in stopping if attempt.team in teams)
            if left > 0:
                found.append(Deficit(teams, left))
        return found

    def _takes_back(self, ask: Ask) -> bool:
        return any(self._teams.within_quota(ask.team, sku, ask.worlds[-1]) for sku in {pool.sku.name for pool in self._pools.all})

    def _has_borrowed(self, ask: Ask, attempt: Running) -> bool:
        other = attempt.team
        return other != ask.team and self._teams.lend_to_each_other(ask.team, other) and self._teams.borrowed(other, attempt.sku) > 0

    def _why(self, ask: Ask, victim: Running, now: float) -> str:
        lost = f"; {victim.lost_s(now) / 3600:.2f} GPU-hours since its last checkpoint"
        if PRIORITIES[victim.priority] < PRIORITIES[ask.priority]:
            return f"{ask.job} has priority {ask.priority}{lost}"
        return f"team {ask.team} takes back what team {victim.team} has borrowed of its quota, for {ask.job}{lost}"


def _may_go(attempt: Running) -> bool:
    return attempt.preemptible and not attempt.stopping
