"""Candidates for preemption: which attempts an ask may preempt, and from when on.

An ask may preempt attempts of lower priority, at once or, where their task was preempted before, after some time
(`Policy.spared_again_s`). Two kinds of asks may preempt attempts of their own priority too: an ask within its team's
quota reclaims GPUs that other teams borrow, and a large gang that has starved preempts attempts with a recent checkpoint. Both spare
attempts until these have run for some time (`Policy.settled_s`, `Policy.starves_settled_s`), and longer after each preemption. An owner
spares attempts that began while it waited for a shorter time (`Policy.settled_late_s`): its guarantee depends on its own wait, not on how
often borrowers follow each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuneyard.federation.policy import Policy
from tuneyard.federation.pools import Key, Pool, Pools
from tuneyard.federation.reservations import Reservations
from tuneyard.federation.teams import Teams
from tuneyard.federation.victims import Deficit, by_checkpoint
from tuneyard.federation.world import PRIORITIES, Ask, Running


@dataclass(frozen=True)
class Found:
    """Candidates in one pool, youngest checkpoint first.

    `reclaimed`: candidates that are legal only while their teams hold borrowed GPUs. `borrowed`: GPUs that each of these teams borrows.
    `settles_at`: when the first attempt that is spared now becomes a candidate.
    """

    attempts: Sequence[Running]
    reclaimed: frozenset[Key] = frozenset()
    borrowed: Mapping[str, int] = field(default_factory=dict)
    settles_at: float = math.inf


@dataclass(frozen=True)
class Rights:
    """The rights by which an ask preempts. Asks of one shape with equal rights have the same candidates.

    `quota_team`: the team of the ask where its quota matters: the ask may reclaim quota, or lacks it. Otherwise empty. `since`: from when
    on borrowing attempts count as begun while it waited, where that matters.
    """

    priority: int
    quota_team: str
    has_starved: bool
    is_patient: bool
    since: float


@dataclass(frozen=True)
class Candidates:
    """Candidates of one cycle, which starts at `now`."""

    policy: Policy
    pools: Pools
    teams: Teams
    reservations: Reservations
    now: float

    def exist_from(self, ask: Ask) -> float:
        """When an ask may have candidates: `-inf` for now, `inf` for never. This costs little, because it looks at no pool."""
        alike = self.exist_for_shape(ask)
        return self.exist_for_team(ask) if alike is None else alike

    def exist_for_shape(self, ask: Ask) -> float | None:
        """The answer of `exist_from` for all asks of one shape and priority; None where it depends on each ask."""
        if not self.policy.preempts or ask.worlds[-1] == 0:
            return math.inf
        mine, preemptible = PRIORITIES[ask.priority], self.pools.preemptible
        if any(count for priority, count in preemptible.items() if priority < mine):
            return -math.inf
        return None if preemptible[mine] and (self.teams.with_quota or self._may_starve(ask)) else math.inf

    def exist_for_team(self, ask: Ask) -> float:
        """The answer of `exist_from` where only attempts of the ask's own priority may be preempted: by a gang that has starved, or by a
        team that reclaims its quota."""
        if self.teams[ask.team].team.quota is None:
            return -math.inf if self.has_starved(ask) else math.inf
        if not any(self.may_reclaim(ask, sku) for sku in self.pools.layout.by_sku):
            return math.inf
        return -math.inf if self.is_patient(ask) else self._patient_at(ask)

    def is_patient(self, ask: Ask) -> bool:
        """Whether an ask has waited long enough to reclaim quota. Most borrowing attempts end by themselves in that time."""
        return self.now >= self._patient_at(ask)

    def has_starved(self, ask: Ask) -> bool:
        """Whether a gang has waited long enough, for its size and duration, to preempt attempts of its own priority. Otherwise a stream of
        small jobs would never leave it enough free GPUs at once. A team with a quota has a guarantee already."""
        if not self._may_starve(ask) or self.teams[ask.team].team.quota is not None:
            return False
        return self.now - ask.created >= max(self.policy.starves_least_s, self.policy.starves_after * ask.seconds)

    def _may_starve(self, ask: Ask) -> bool:
        """Whether a gang is large enough to starve."""
        return 0 < self.policy.starves_from <= ask.worlds[-1]

    def may_reclaim(self, ask: Ask, sku: str) -> bool:
        """Whether an ask stays within its team's own quota of a SKU, beside quota reserved for the team in this cycle."""
        return self.teams.within_quota(ask.team, sku, ask.smallest(sku) + self.reservations.of_team[ask.team, sku])

    def deficits(self, ask: Ask, sku: str) -> list[Deficit]:
        """Quota that an ask lacks, beside quota reserved for its team in this cycle."""
        needed = ask.smallest(sku) + self.reservations.of_team[ask.team, sku]
        return [Deficit(teams, gpus) for teams, gpus in self.teams.deficits(ask.team, sku, needed)]

    def rights(self, ask: Ask) -> Rights:
        """The rights of an ask."""
        team, is_patient = self._quota_team(ask), self.is_patient(ask)
        since = ask.created if team and is_patient else math.inf
        return Rights(PRIORITIES[ask.priority], team, self.has_starved(ask), is_patient, since)

    def _quota_team(self, ask: Ask) -> str:
        if self.teams[ask.team].team.quota is None:
            return ""
        mine = bool(self.pools.preemptible[PRIORITIES[ask.priority]])
        matters = any((mine and self.may_reclaim(ask, sku)) or self.deficits(ask, sku) for sku in self.pools.layout.by_sku)
        return ask.team if matters else ""

    def may_ever_go(self, attempt: Running, ask: Ask) -> bool:
        """Whether an ask may preempt an attempt at some time, however long it waits. A starved gang spares attempts without a
        checkpoint."""
        if attempt.stopping:
            return True
        if not self.policy.preempts or not attempt.preemptible or PRIORITIES[attempt.priority] > PRIORITIES[ask.priority]:
            return False
        return PRIORITIES[attempt.priority] < PRIORITIES[ask.priority] or self._has_saved(attempt)

    def in_pool(self, ask: Ask, rights: Rights, pool: Pool) -> Found:
        """Candidates in a pool: attempts of lower priority, and settled attempts of the ask's own."""
        lower, settles_at = self._unspared(_lower(pool, rights.priority), ask)
        reclaims, starved = self.may_reclaim(ask, pool.sku.name), rights.has_starved
        if reclaims and not rights.is_patient:
            reclaims, settles_at = False, min(settles_at, self._patient_at(ask))
        if not (reclaims or starved):
            return Found(lower, settles_at=settles_at)
        equal, teams = _equal(pool, rights.priority)
        borrowed = {team: self.teams.borrowed(team, pool.sku.name) for team in teams if self._lends(ask.team, team)}
        borrowed = {team: gpus for team, gpus in borrowed.items() if gpus > 0}
        settled = []
        for attempt in equal:
            at = math.inf
            if reclaims and attempt.team in borrowed:
                at = self._settled_at(attempt, self._spared_s(attempt, ask))
            if starved and self._has_saved(attempt) and (attempt.team == ask.team or attempt.team in borrowed):
                at = min(at, self._settled_at(attempt, self.policy.starves_settled_s))
            if at <= self.now:
                settled.append(attempt)
            else:
                settles_at = min(settles_at, at)
        if not settled:
            return Found(lower, settles_at=settles_at)
        reclaimed = frozenset(attempt.key for attempt in settled if attempt.team != ask.team)
        return Found(sorted([*lower, *settled], key=by_checkpoint), reclaimed, borrowed, settles_at)

    def with_other_pools(self, here: Found, ask: Ask, rights: Rights, pool: Pool, deficits: Sequence[Deficit]) -> Found:
        """Candidates in a pool, and candidates in other pools of the SKU that return quota which the ask lacks."""
        over = frozenset().union(*(deficit.teams for deficit in deficits))
        attempts, reclaimed, borrowed, settles_at = list(here.attempts), set(here.reclaimed), dict(here.borrowed), here.settles_at
        for other in self.pools.all:
            if other is not pool and other.sku.name == pool.sku.name and not over.isdisjoint(other.teams()):
                there = self.in_pool(ask, rights, other)
                attempts += [attempt for attempt in there.attempts if attempt.team in over]
                reclaimed |= there.reclaimed
                borrowed |= there.borrowed
                settles_at = min(settles_at, there.settles_at)
        return Found(sorted(attempts, key=by_checkpoint), frozenset(reclaimed), borrowed, settles_at)

    def _patient_at(self, ask: Ask) -> float:
        return ask.created + self.policy.settled_s

    def _unspared(self, lower: Sequence[Running], ask: Ask) -> tuple[Sequence[Running], float]:
        """Attempts of lower priority that an ask may preempt now, and when the first of the others may be preempted."""
        if ask.priority == "urgent" or not any(each.preempted for each in lower):
            return lower, math.inf
        found: list[Running] = []
        settles_at = math.inf
        for each in lower:
            at = self._settled_at(each, self.policy.spared_again_s) if each.preempted else -math.inf
            if at <= self.now:
                found.append(each)
            else:
                settles_at = min(settles_at, at)
        return found, settles_at

    def _spared_s(self, attempt: Running, owner: Ask) -> float:
        """The least running time of a borrowing attempt before an owner may reclaim its quota."""
        late = attempt.started >= owner.created
        return min(self.policy.settled_s, self.policy.settled_late_s) if late else self.policy.settled_s

    def _settled_at(self, attempt: Running, settled_s: float) -> float:
        doublings = min(attempt.preempted, 32)
        return attempt.started + min(self.policy.longest_settled_s, settled_s * 2.0**doublings)

    def _has_saved(self, attempt: Running) -> bool:
        return attempt.saved > attempt.started and attempt.saved >= self.now - self.policy.starves_unsaved_s

    def _lends(self, one: str, other: str) -> bool:
        return other != one and self.teams.lends(one, other)


def _lower(pool: Pool, priority: int) -> Sequence[Running]:
    known = pool.answers.lower
    if priority not in known:
        lower = [each for each in pool.attempts.values() if _may_go(each) and PRIORITIES[each.priority] < priority]
        known[priority] = sorted(lower, key=by_checkpoint)
    return known[priority]


def _equal(pool: Pool, priority: int) -> tuple[Sequence[Running], frozenset[str]]:
    known = pool.answers.equal
    if priority not in known:
        equal = [each for each in pool.attempts.values() if _may_go(each) and PRIORITIES[each.priority] == priority]
        known[priority] = (equal, frozenset(each.team for each in equal))
    return known[priority]


def _may_go(attempt: Running) -> bool:
    return attempt.preemptible and not attempt.stopping
