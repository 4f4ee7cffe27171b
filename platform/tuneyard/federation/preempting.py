"""Who may ask others to go, and whom: by priority, or to take back what others have borrowed of a team's own quota.

Whoever goes for a higher priority cannot come back against it. Who gives back borrowed quota is below its own then, and may rank before the
asker: so an ask for which others go is owed what they free, and is looked at first (`Cycles`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuneyard.federation.policy import Policy
from tuneyard.federation.pools import Key, Pool, Pools
from tuneyard.federation.promising import Promises
from tuneyard.federation.refusing import Refusals
from tuneyard.federation.reserving import Reservation, claimed_in, reservation, start_in
from tuneyard.federation.shapes import Shape
from tuneyard.federation.teams import Teams
from tuneyard.federation.victims import Cost, Deficit, Search, Victims, by_age, cheapest_victims, least_cost_s
from tuneyard.federation.victims_in_order import youngest_victims
from tuneyard.federation.world import PRIORITIES, Ask, Preempt, Running

_TIGHTEST = 4
_MOST_SEARCHES = 24
"""How many pools are searched for victims in one cycle, about: asks that come after that look in the next."""


@dataclass(frozen=True)
class Making:
    """`going`: who is asked to go; `kept`: the room they make, kept for the ask. Both empty: nobody may be asked."""

    going: tuple[Preempt, ...] = ()
    kept: Reservation | None = None


@dataclass
class _Census:
    """What the running attempts amount to, for a quick no."""

    by_priority: Counter[int] = field(default_factory=Counter)
    """Attempts that may be asked to go, or have been, by priority."""
    stopping: int = 0


@dataclass(frozen=True)
class _Candidates:
    """Who may be asked to go in one pool, youngest checkpoint first; `taken_back`: only to give back what their teams have borrowed."""

    attempts: Sequence[Running]
    taken_back: frozenset[Key] = frozenset()
    borrowed: Mapping[str, int] = field(default_factory=dict)


class Preempting:
    def __init__(self, policy: Policy, pools: Pools, teams: Teams, promises: Promises) -> None:
        self._policy = policy
        self._pools = pools
        self._teams = teams
        self._promises = promises
        self._overhead_s = policy.grace_s + policy.restart_s
        self._choose: Callable[[Search], Victims | None] = youngest_victims if policy.victims == "youngest" else cheapest_victims
        self._census = _Census()
        self._searches = 0
        self._now = 0.0
        self._lower_in: dict[tuple[int, int], tuple[int, Sequence[Running]]] = {}
        self._equal_in: dict[tuple[int, int], tuple[int, Sequence[Running], frozenset[str]]] = {}
        self._refusals = Refusals(pools, teams)
        self._none_go_for: set[object] = set()
        """Kinds of ask for which those who go already make no room, in this cycle."""
        self._kept: Counter[int] = Counter()
        """GPUs by pool, of those that are free or become free by those who go, that are kept for somebody in this cycle."""
        self._refused_now: set[object] = set()
        """Kinds of ask for which nobody may be asked to go in this cycle."""
        self._settles = math.inf
        """When the first of those who were passed over in a search, for they have not borrowed for long enough, may be asked to go."""
        self.again_at = math.inf
        """When another look may find somebody to go who was passed over in this cycle."""
        self.unfinished = False
        """Somebody was not looked at in this cycle, for lack of time."""

    def begin(self, now: float) -> None:
        """A new cycle."""
        self._now = now
        self._searches = 0
        self._none_go_for.clear()
        self._kept.clear()
        self._refused_now.clear()
        self.again_at = math.inf
        self.unfinished = False
        self._refusals.begin()

    def count(self, attempt: Running, sign: int) -> None:
        """Keep count of who runs."""
        self._census.stopping += sign * attempt.stopping
        if attempt.preemptible or attempt.stopping:
            self._census.by_priority[PRIORITIES[attempt.priority]] += sign

    def may(self, ask: Ask) -> bool:
        """Whether it is worth a look."""
        if not self._policy.preempts or ask.worlds[-1] == 0:
            return False
        mine = PRIORITIES[ask.priority]
        if any(count for priority, count in self._census.by_priority.items() if priority < mine):
            return True
        if not self._census.by_priority[mine]:
            return False
        if self._has_starved(ask):
            return True
        if not self._takes_back(ask):
            return False
        if not self._is_patient(ask):
            self.again_at = min(self.again_at, self._patient_at(ask))
            return False
        return True

    def _patient_at(self, ask: Ask) -> float:
        """When an ask may take back what others have borrowed: most of them end by themselves while it waits."""
        return ask.created + self._policy.settled_s

    def _is_patient(self, ask: Ask) -> bool:
        return self._now >= self._patient_at(ask)

    def _has_starved(self, ask: Ask) -> bool:
        """Whether a gang has waited so long for its size that others of its priority are to make room: small jobs that come all the time
        would else never leave it enough at once. Who has a quota has its guarantee by that."""
        policy, gpus = self._policy, ask.worlds[-1]
        if not policy.starves_from or gpus < policy.starves_from or self._teams[ask.team].team.quota is not None:
            return False
        return self._now - ask.created >= max(policy.starves_least_s, policy.starves_after * ask.seconds)

    def make_room(self, ask: Ask, shape: Shape, now: float, reservations: Sequence[Reservation]) -> Making:
        """Whom to ask to go, for the smallest world that would do; nobody where others that go already make the room."""
        if self._teams[ask.team].team.closed:
            return Making()
        pools = [pool for pool in shape.allowed(self._pools) if pool.usable]
        team = self._team_that_matters(ask)
        kind = (shape, ask.priority, team, self._has_starved(ask), self._is_patient(ask))
        if self._census.stopping and kind not in self._none_go_for:
            kept = self._by_those_who_go(ask, shape, pools, now, reservations)
            if kept is not None:
                return self._keep(Making(kept=kept))
            self._none_go_for.add(kind)
        if kind in self._refused_now:
            return Making()
        worth = self._refusals.worth_a_look(kind, team, pools)
        if worth and self._searches >= _MOST_SEARCHES:
            self.unfinished = True
            return Making()
        self._settles = math.inf
        best = self._cheapest(ask, shape, worth, now, reservations)
        if best is None:
            self._refused_now.add(kind)
            # What is promised in this cycle may not be in the next; who has just begun to borrow may be asked later.
            if not (team and self._promises) and self._settles == math.inf:
                self._refusals.refuse(kind, {each.pool.index for each in reservations})
            self.again_at = min(self.again_at, self._settles)
            return Making()
        victims, pool, size = best
        gone = [replace(attempt, stopping=True, ends=now + self._policy.grace_s) for attempt in victims.attempts]
        stopping = [*stopping_in(pool), *(each for each in gone if (each.cluster, each.sku) == (pool.member, pool.sku.name))]
        claimed = claimed_in(pool, reservations, shape.avoided(self._pools, pool))
        start = start_in(pool, ask.smallest(pool.sku.name) // size, size, now, claimed=claimed, ends=stopping)
        kept = reservation((ask.job, ask.task), start) if start is not None else None
        starved = self._has_starved(ask)
        going = tuple(
            Preempt(victim=victim, ask=ask, reason=why_it_goes(ask, victim, now, self._policy, has_starved=starved))
            for victim in victims.attempts
        )
        return self._keep(Making(going, kept))

    def _keep(self, making: Making) -> Making:
        if making.kept is not None:
            self._kept[making.kept.pool.index] += sum(making.kept.needs.values())
        return making

    def _team_that_matters(self, ask: Ask) -> str:
        """Asks of one shape and priority are refused together, whatever their teams, but where a team has quota to take back by, or quota
        stands in its way."""
        if self._teams[ask.team].team.quota is None:
            return ""
        mine = bool(self._census.by_priority[PRIORITIES[ask.priority]])
        plain = not any((mine and self._takes_back_of(ask, sku)) or self._missing(ask, sku) for sku in self._pools.by_sku())
        return "" if plain else ask.team

    def _cheapest(
        self, ask: Ask, shape: Shape, pools: Sequence[Pool], now: float, reservations: Sequence[Reservation]
    ) -> tuple[Victims, Pool, int] | None:
        """The cheapest victims of all pools: those pools first whose bound is least, until no bound beats what was found. Where the policy
        takes the youngest, those of the first pool that has any."""
        free = self._pools.free_gpus()
        takes_first = self._policy.victims == "youngest"
        bounds = []
        for pool in pools:
            deficits = [Deficit(teams, gpus) for teams, gpus in self._missing(ask, pool.sku.name)]
            candidates = self._candidates(ask, pool, now)
            if deficits:
                candidates = self._with_others(candidates, ask, pool, deficits, now)
            if candidates.attempts:
                have = int(free[pool.index]) + pool.stopping
                least_s = least_cost_s(candidates.attempts, max(1, ask.smallest(pool.sku.name) - have), now, self._overhead_s)
                if least_s < math.inf:
                    bounds.append((0.0 if takes_first else least_s, pool.member, pool.sku.name, pool, candidates, deficits))
        best: tuple[Victims, Pool, int] | None = None
        for least_s, _, _, pool, candidates, deficits in sorted(bounds, key=lambda each: each[:3]):
            if best is not None and (takes_first or least_s >= best[0].cost[0]):
                break
            claimed = claimed_in(pool, reservations, shape.avoided(self._pools, pool))
            below = best[0].cost if best is not None else None
            found = self._search_in(pool, shape, candidates, ask.smallest(pool.sku.name), now, claimed, deficits, below)
            if found is not None:
                best = (found[0], pool, found[1])
        return best

    def _search_in(
        self,
        pool: Pool,
        shape: Shape,
        candidates: _Candidates,
        workers: int,
        now: float,
        claimed: Mapping[str, int],
        deficits: Sequence[Deficit],
        below: Cost | None,
    ) -> tuple[Victims, int] | None:
        """The cheapest victims in one pool, and the size of pod that they make room for: the largest for which any do."""
        self._searches += 1
        leaving: Counter[str] = Counter()
        for each in stopping_in(pool):
            leaving.update(each.nodes)
        for size in shape.sizes(workers, pool):
            search = Search(
                pool=pool,
                pods=workers // size,
                size=size,
                candidates=candidates.attempts,
                now=now,
                claimed=claimed,
                leaving=leaving,
                borrowed=candidates.borrowed,
                taken_back=candidates.taken_back,
                deficits=deficits,
                overhead_s=self._overhead_s,
            )
            found = self._choose(search)
            if found is not None:
                return (found, size) if found.attempts and (below is None or found.cost < below) else None
        return None

    def _with_others(self, here: _Candidates, ask: Ask, pool: Pool, deficits: Sequence[Deficit], now: float) -> _Candidates:
        """Also those in other pools of the SKU who could give back the quota that is missing."""
        over = frozenset().union(*(deficit.teams for deficit in deficits))
        attempts, taken_back = list(here.attempts), set(here.taken_back)
        borrowed = dict(here.borrowed)
        for other in self._pools.all:
            if other is not pool and other.sku.name == pool.sku.name and not over.isdisjoint(other.teams()):
                there = self._candidates(ask, other, now)
                attempts += [attempt for attempt in there.attempts if attempt.team in over]
                taken_back |= there.taken_back
                borrowed |= there.borrowed
        return _Candidates(sorted(attempts, key=by_age), frozenset(taken_back), borrowed)

    def _candidates(self, ask: Ask, pool: Pool, now: float) -> _Candidates:
        """Attempts of lower priority, and settled ones of the same: those whose teams hold what is the asker's; and for a gang that has
        starved, its own team's, and what others hold beyond their quotas."""
        lower, starved = self._lower(pool, PRIORITIES[ask.priority]), self._has_starved(ask)
        takes_back = self._takes_back_of(ask, pool.sku.name)
        if takes_back and not self._is_patient(ask):
            self._settles = min(self._settles, self._patient_at(ask))
            takes_back = False
        if not (takes_back or starved):
            return _Candidates(lower)
        equal, teams = self._equal(pool, PRIORITIES[ask.priority])
        borrowed = {team: self._teams.borrowed(team, pool.sku.name) for team in teams if self._lends(ask.team, team)}
        borrowed = {team: gpus for team, gpus in borrowed.items() if gpus > 0}
        settled = []
        for attempt in equal:
            at = math.inf
            if takes_back and attempt.team in borrowed:
                at = self._settled_at(attempt, self._policy.settled_s)
            if starved and self._has_saved(attempt, now) and (attempt.team == ask.team or attempt.team in borrowed):
                at = min(at, self._settled_at(attempt, self._policy.starves_settled_s))
            if at <= now:
                settled.append(attempt)
            else:
                self._settles = min(self._settles, at)
        if not settled:
            return _Candidates(lower)
        back = frozenset(attempt.key for attempt in settled if attempt.team != ask.team)
        return _Candidates(sorted([*lower, *settled], key=by_age), back, borrowed)

    def _settled_at(self, attempt: Running, settled_s: float) -> float:
        """When an attempt may be asked to go by those of its priority."""
        doublings = min(attempt.preempted, 32)
        return attempt.started + min(self._policy.longest_settled_s, settled_s * 2.0**doublings)

    def _has_saved(self, attempt: Running, now: float) -> bool:
        """Whether an attempt would lose little for a gang that has starved."""
        return attempt.saved > attempt.started and attempt.saved >= now - self._policy.starves_unsaved_s

    def may_ever_go(self, attempt: Running, ask: Ask, now: float) -> bool:
        """Whether an attempt can come to be asked to go for an ask, however long that waits: one without a checkpoint is left alone by
        gangs of its own priority that starve."""
        if attempt.stopping:
            return True
        if not self._policy.preempts or not attempt.preemptible or PRIORITIES[attempt.priority] > PRIORITIES[ask.priority]:
            return False
        return PRIORITIES[attempt.priority] < PRIORITIES[ask.priority] or self._has_saved(attempt, now)

    def _lower(self, pool: Pool, mine: int) -> Sequence[Running]:
        """Attempts of lower priority that may be asked to go, youngest checkpoint first; remembered until the pool changes."""
        known = self._lower_in.get((pool.index, mine))
        if known is None or known[0] != pool.version:
            lower = [each for each in pool.attempts.values() if _may_go(each) and PRIORITIES[each.priority] < mine]
            known = self._lower_in[pool.index, mine] = (pool.version, sorted(lower, key=by_age))
        return known[1]

    def _equal(self, pool: Pool, mine: int) -> tuple[Sequence[Running], frozenset[str]]:
        """Attempts of the same priority that may be asked to go, and their teams; remembered until the pool changes."""
        known = self._equal_in.get((pool.index, mine))
        if known is None or known[0] != pool.version:
            equal = [each for each in pool.attempts.values() if _may_go(each) and PRIORITIES[each.priority] == mine]
            known = self._equal_in[pool.index, mine] = (pool.version, equal, frozenset(each.team for each in equal))
        return known[1], known[2]

    def _by_those_who_go(
        self, ask: Ask, shape: Shape, pools: Sequence[Pool], now: float, reservations: Sequence[Reservation]
    ) -> Reservation | None:
        """The room that is made by those who have been asked to go already, where it is enough: the tightest, so that what was freed for a
        large ask is left to it."""
        free = self._pools.free_gpus()
        room = [(int(free[pool.index]) + pool.stopping - self._kept[pool.index], pool.member, pool.sku.name, pool) for pool in pools]
        for _, _, sku, pool in sorted((each for each in room if each[0] >= ask.smallest(each[2])), key=lambda each: each[:3]):
            workers = ask.smallest(sku)
            if not (pool.stopping or self._teams.gets_back(ask.team, sku)) or self._missing(ask, sku):
                continue
            claimed = claimed_in(pool, reservations, shape.avoided(self._pools, pool))
            stopping = stopping_in(pool)
            enough = sorted((each for each in stopping if each.gpus >= workers), key=lambda each: (each.gpus, each.ends, each.key))
            for going in (*([each] for each in enough[:_TIGHTEST]), stopping):
                for size in shape.sizes(workers, pool):
                    start = start_in(pool, workers // size, size, now, claimed=claimed, ends=going)
                    if start is not None:
                        return reservation((ask.job, ask.task), start)
        return None

    def _missing(self, ask: Ask, sku: str) -> list[tuple[frozenset[str], int]]:
        """Quota that must be given back first."""
        return self._teams.deficits(ask.team, sku, ask.smallest(sku) + self._promises.gpus(ask.team, sku))

    def _takes_back(self, ask: Ask) -> bool:
        if self._teams[ask.team].team.quota is None:
            return False
        return any(self._takes_back_of(ask, sku) for sku in self._pools.by_sku())

    def _takes_back_of(self, ask: Ask, sku: str) -> bool:
        """Whether the ask stays within its team's own quota, with what was promised to others of the team in this cycle."""
        return self._teams.within_quota(ask.team, sku, ask.smallest(sku) + self._promises.gpus(ask.team, sku))

    def _lends(self, one: str, other: str) -> bool:
        return other != one and self._teams.lends(one, other)


def why_it_goes(ask: Ask, victim: Running, now: float, policy: Policy, *, has_starved: bool) -> str:
    """Why an attempt is asked to go for an ask, and what it loses, for people."""
    unsaved_s = victim.lost_s(now)
    whole_s = unsaved_s + victim.gpus * (policy.grace_s + policy.restart_s)
    lost = f"; it loses {whole_s / 3600:.2f} GPU-hours, {unsaved_s / 3600:.2f} of them since its last checkpoint"
    if PRIORITIES[victim.priority] < PRIORITIES[ask.priority]:
        return f"{ask.job} has priority {ask.priority}{lost}"
    if has_starved:
        return f"{ask.job} has waited for {(now - ask.created) / 3600:.0f} h for {ask.smallest(victim.sku)} GPUs at once{lost}"
    return f"team {ask.team} takes back what team {victim.team} has borrowed of its quota, for {ask.job}{lost}"


def stopping_in(pool: Pool) -> list[Running]:
    """Attempts of a pool that have been asked to go."""
    return [attempt for attempt in pool.attempts.values() if attempt.stopping] if pool.stopping else []


def _may_go(attempt: Running) -> bool:
    return attempt.preemptible and not attempt.stopping
