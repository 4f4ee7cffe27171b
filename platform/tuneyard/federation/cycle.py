"""One scheduling cycle: starts, preemptions, and reservations for asks that start later.

1. Asks that could never run are refused, once for each change of members or of teams' rules.
2. Priorities come in turn, the highest first. Within one, asks come by the rank of the policy, put back by the usage of their teams.
   Only heads of queues are considered. Where no free GPUs fit one ask of a shape, further asks of the shape are skipped. So the time of a
   cycle depends on its decisions, not on the number of waiting asks.
3. An ask starts (`placement`), preempts (`preemption`) or waits. The first waiting asks get reservations (`reservations`). Behind a
   reservation, shorter asks of the same queue are backfilled.

A `Cycle` owns the state of one cycle. State that outlives a cycle belongs to pools, teams and queues.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from tuneyard.federation.explanations import why_infeasible
from tuneyard.federation.placement import NOWHERE, Finder, Found
from tuneyard.federation.policy import Policy
from tuneyard.federation.pools import Key, Pools, Start
from tuneyard.federation.preemption import Failures, Preemption
from tuneyard.federation.queues import Feasibility, Group, Queue, Queues, Shape
from tuneyard.federation.reservations import Reservation, Reservations, latest_end, reservation
from tuneyard.federation.teams import Teams
from tuneyard.federation.world import PRIORITIES, Ask, Infeasible, Place, Preempt, Running, Undecidable, expected_end, running_of

_LENT_WHEN_DUE = 0.1
"""A reservation of a due ask is lent for this share of the remaining time of attempts that it waits for and may not preempt. Quota that is
reserved alone is lent for this share of the time until the ask has it."""
_BACKFILL_LOOK = 256
"""Asks of one queue that are considered for backfill (as Slurm's bf_max_job_test)."""


@dataclass(frozen=True)
class Outcome:
    """The result of a cycle. `unfinished`: victims were not searched for all asks, and another cycle continues. `again_at`: when another
    cycle may preempt attempts that were spared in this one."""

    decisions: Sequence[Place | Preempt | Infeasible] = ()
    reservations: Sequence[Reservation] = ()
    unfinished: bool = False
    again_at: float = math.inf


class _Head(NamedTuple):
    """An ask at a place of its queue, in the order of a priority. `behind`: a heap of the heads of other queues of its shape, where no free
    GPUs fit the shape and none of these asks may preempt: the head may get a reservation only."""

    rank: float
    created: float
    job: str
    task: str
    at: int
    queue: Queue
    feasibility: Feasibility
    behind: list[_Head] | None = None

    @property
    def ask(self) -> Ask:
        return self.queue.entries[self.at].ask


class Cycle:
    """One cycle, at `now`. It calls `allocate` with each attempt that starts or becomes a victim, before the next decision."""

    def __init__(
        self,
        policy: Policy,
        pools: Pools,
        teams: Teams,
        queues: Queues,
        failures: Failures,
        now: float,
        allocate: Callable[[Running, float], None],
    ) -> None:
        self._policy = policy
        self._pools = pools
        self._layout = pools.layout
        self._teams = teams
        self._queues = queues
        self._failures = failures
        self._now = now
        self._allocate = allocate
        self._decisions: list[Place | Preempt | Infeasible] = []
        self._penalties = self._penalties_of_teams()
        self._with_quota = teams.with_quota if policy.borrowing_s else frozenset()
        self._reservations = Reservations(teams)
        self._finder = Finder(policy, pools, self._layout, teams, self._reservations, now)
        self._preemption_made: Preemption | None = None
        self._waiting_reserved = 0
        """Reservations for asks that wait without preempting: the policy limits their number."""
        self._owed: list[Ask] = []
        """Asks that have preempted in this cycle."""
        self._blocked: set[Shape] = set()
        """Shapes that no free GPUs fit."""
        self._backfill_s: dict[Shape, float] = {}
        """Longest durations with which asks of a shape may use free GPUs, where all of these are reserved."""

    @property
    def _preemption(self) -> Preemption:
        if self._preemption_made is None:
            self._preemption_made = Preemption(self._policy, self._pools, self._teams, self._reservations, self._failures, self._now)
        return self._preemption_made

    def run(self) -> Outcome:
        """Decide. Raises Undecidable where one ask makes the cycle fail: the scheduler is unusable then."""
        self._refuse_infeasible()
        for groups in self._queues.by_priority():
            if self._decide(self._heads(groups)):
                break
        self._owe_freed()
        made = self._preemption_made
        again = (made.unfinished, made.again_at) if made is not None else ()
        return Outcome(self._decisions, self._reservations.gpus, *again)

    # --- the order of asks

    def ahead(self, key: Key) -> int:
        """The number of asks before one. Raises KeyError where it does not wait."""
        found = self._queues.get(key)
        if found is None:
            raise KeyError("/".join(key))
        queue, entry = found
        own = self._position(queue, queue.entries.index(entry))
        return sum(self._position(other, at) < own for other in self._queues.all() for at in range(len(other.entries)))

    def _position(self, queue: Queue, at: int) -> tuple[int, float, float, str, str]:
        head = self._head(queue, at, queue.shape.on(self._layout))
        return (-PRIORITIES[head.ask.priority], *head[:4])

    def _penalties_of_teams(self) -> dict[str, float]:
        """Seconds by which the asks of each team are put back for the team's usage."""
        if not self._policy.fairness_s:
            return {}
        shares = self._teams.shares(self._layout.capacity, self._now)
        if self._policy.fairness == "halving":
            return {name: self._policy.fairness_s * (1 - 2.0**-share) for name, share in shares.items()}
        return {name: self._policy.fairness_s * min(share, 100.0) for name, share in shares.items()}

    def _head(self, queue: Queue, at: int, feasibility: Feasibility) -> _Head:
        entry = queue.entries[at]
        rank = entry.rank
        if entry.ask.owed_since is None:
            rank += self._penalties.get(queue.team, 0.0)
            if queue.team in self._with_quota and self._would_borrow(queue, feasibility):
                rank += self._policy.borrowing_s
        return _Head(rank, entry.created, entry.job, entry.task, at, queue, feasibility)

    def _would_borrow(self, queue: Queue, feasibility: Feasibility) -> bool:
        """Whether the team has no quota of its own left, on any SKU of a queue. An ask that takes the last of it and borrows the rest does
        not count, unless the policy counts whole asks: large asks of a team stay before small ones."""
        gpus = queue.shape.ask.worlds[0] if self._policy.borrows_whole else 1
        return self._teams.would_borrow(queue.team, feasibility.skus, gpus)

    def _heads(self, groups: Sequence[Group]) -> list[_Head]:
        """Heads of all queues of a priority, as a heap."""
        heads: list[_Head] = []
        for group in groups:
            queues = [queue for queue in group.queues.values() if not queue.infeasible]
            if queues:
                with _on_account_of(queues[0].entries[0].ask):
                    heads += self._heads_of(group.shape, queues)
        heapq.heapify(heads)
        return heads

    def _heads_of(self, shape: Shape, queues: Sequence[Queue]) -> list[_Head]:
        """Heads of the queues of one shape. Where no free GPUs fit the shape: heads that may preempt, and the first of the others."""
        feasibility = shape.on(self._layout)
        heads = [self._head(queue, 0, feasibility) for queue in queues]
        if self._policy.strict or self._has_room(feasibility):
            return heads
        self._blocked.add(shape)
        preempting: list[_Head] = []
        others: list[_Head] = []
        possible = self._preemption.are_possible([queue.entries[0].ask for queue in queues])
        for head, may_preempt in zip(heads, possible, strict=True):
            (preempting if may_preempt else others).append(head)
        if others and self._may_reserve():
            heapq.heapify(others)
            preempting.append(heapq.heappop(others)._replace(behind=others))
        return preempting

    def _has_room(self, feasibility: Feasibility) -> bool:
        """Whether any option fits into free GPUs, without regard to quota and reservations."""
        with_room = self._pools.with_room
        return any(not each.size or len(with_room(each.pods, each.size, each.pools)) for each in feasibility.smallest)

    # --- decisions

    def _decide(self, heads: list[_Head]) -> bool:
        """Decide about the asks of one priority. True: no further asks may be considered."""
        strict = self._policy.strict
        while heads:
            head = heapq.heappop(heads)
            ask, queue, feasibility, behind = head.ask, head.queue, head.feasibility, head.behind
            if behind is not None:
                with _on_account_of(ask):
                    if self._may_reserve() and not self._reserve(ask, feasibility) and behind:
                        heapq.heappush(heads, heapq.heappop(behind)._replace(behind=behind))
                continue
            if queue.shape in self._blocked and not self._may_reserve() and not self._preemption.is_possible(ask):
                if strict:
                    return True
                continue
            with _on_account_of(ask):
                following = self._consider(ask, queue, head.at, feasibility)
            if strict and following is None:
                return True
            if following is not None and following < len(queue.entries):
                heapq.heappush(heads, self._head(queue, following, feasibility))
        return False

    def _consider(self, ask: Ask, queue: Queue, at: int, feasibility: Feasibility) -> int | None:
        """Decide about one ask. Returns the place of the next ask of its queue. None: no further ask of the queue can start."""
        shape = queue.shape
        backfill_s = self._backfill_s.get(shape)
        if backfill_s is not None and ask.seconds * feasibility.fastest > backfill_s:
            return self._shorter(queue, feasibility, at + 1, backfill_s)
        found = self._finder.find(ask, feasibility) if shape not in self._blocked else NOWHERE
        if found.place is not None:
            self._start(found.place)
            return at
        if not found.better_later and self._preempt(ask, feasibility):
            return at + 1
        if found.backfill_s is not None:
            if not found.lacks_quota and not found.better_later:
                self._backfill_s[shape] = found.backfill_s
            return self._shorter(queue, feasibility, at + 1, found.backfill_s)
        self._wait(ask, shape, feasibility, found)
        return None

    def _start(self, place: Place) -> None:
        self._decisions.append(place)
        attempt = running_of(place, self._now)
        if self._reservations.quota:
            self._reservations.take(attempt.team, attempt.sku, place.workers, attempt.ends)
        self._allocate(attempt, self._now)

    def _preempt(self, ask: Ask, feasibility: Feasibility) -> bool:
        """Free GPUs for an ask, where it may preempt. True: GPUs become free for it."""
        if not self._preemption.is_possible(ask) or self._finder.waits_for_more(ask, feasibility):
            return False
        freed = self._preemption.free(ask, feasibility)
        stopped_by = self._now + self._policy.grace_s
        for each in freed.victims:
            self._decisions.append(each)
            self._allocate(replace(each.victim, stopping=True, ends=stopped_by), self._now)
        if freed.victims and self._policy.owes_freed:
            self._owed.append(ask)
        if freed.kept is not None:
            smallest = ask.smallest(freed.kept.pool.sku.name)
            self._reservations.reserve(ask.team, freed.kept, smallest, self._now)
        return bool(freed.victims) or freed.kept is not None

    def _wait(self, ask: Ask, shape: Shape, feasibility: Feasibility, found: Found) -> None:
        """Reserve quota or GPUs for an ask that neither starts nor preempts."""
        if found.lacks_quota:
            if self._policy.reserves_quota and not self._teams[ask.team].team.closed and not self._reserve(ask, feasibility):
                lent = _LENT_WHEN_DUE if self._is_due(ask) else 1.0
                self._reservations.reserve_next_quota(ask.team, found.lacks_quota, feasibility.first, self._now, lent)
            return
        self._reserve(ask, feasibility)
        if not found.better_later:
            self._blocked.add(shape)

    def _shorter(self, queue: Queue, feasibility: Feasibility, at: int, longest_s: float) -> int | None:
        """The place of the next ask of a queue that may be backfilled within `longest_s`."""
        fastest = feasibility.fastest
        if queue.shortest_s * fastest > longest_s:
            return None
        for index in range(at, min(len(queue.entries), at + _BACKFILL_LOOK)):
            if queue.entries[index].ask.seconds * fastest <= longest_s:
                return index
        return None

    # --- reservations

    def _may_reserve(self) -> bool:
        return self._waiting_reserved < self._policy.reservations

    def _reserve(self, ask: Ask, feasibility: Feasibility) -> bool:
        """Reserve GPUs and quota for an ask from the time on at which it is predicted to have both. False: there is no such time, or the
        policy reserves for no further asks. GPUs that are free before the quota are lent until then.

        False too for an ask that awaits quota longer than GPUs, and cannot reclaim it: its team holds it, or it would borrow. It reserves
        quota alone, and leaves the GPUs and the reservations of the policy to asks that lack GPUs."""
        if not self._may_reserve() or self._teams[ask.team].team.closed:
            return False
        start = self._finder.earliest(ask, feasibility, awaits_quota=self._policy.reserves_quota)
        if start is None:
            return False
        awaits_quota = start.at > latest_end(start.after, self._now)
        if awaits_quota and not self._preemption.candidates.may_reclaim(ask, start.pool.sku.name):
            return False
        self._waiting_reserved += 1
        lent_until = self._lent_until(ask, start) if self._is_due(ask) else math.inf
        kept = reservation((ask.job, ask.task), start, lent_until=math.inf if awaits_quota else lent_until)
        self._reservations.reserve(ask.team, kept, feasibility.first, self._now, lent_until)
        return True

    def _lent_until(self, ask: Ask, start: Start) -> float:
        """Until when the reservation of a due ask is lent: for a tenth of the remaining time of attempts that it can never preempt. Idle
        GPUs would not let it start earlier."""
        may_ever_go = self._preemption.candidates.may_ever_go
        stays = [expected_end(each.ends, self._now) for each in start.after if not may_ever_go(each, ask)]
        return self._now + _LENT_WHEN_DUE * (max(stays) - self._now) if stays else -math.inf

    def _is_due(self, ask: Ask) -> bool:
        """Whether an ask has waited past its rank. Its reservation is hardly lent: backfilled attempts that outlast their predictions would
        delay it again and again."""
        found = self._queues.get((ask.job, ask.task))
        return self._policy.order == "stretch" and found is not None and self._now >= found[1].rank

    def _owe_freed(self) -> None:
        """Owe freed GPUs to the asks that preempted for them. These asks come first within their priority from the next cycle on: victims
        would otherwise take freed GPUs, and be preempted again."""
        for ask in self._owed:
            if ask.owed_since is None and self._queues.remove((ask.job, ask.task)) is not None:
                self._queues.add(replace(ask, owed_since=self._now))

    # --- infeasible asks

    def _refuse_infeasible(self) -> None:
        if not self._pools.members:
            return
        for entry, queue in self._queues.to_refuse((self._layout.version, self._teams.version), self._is_feasible):
            with _on_account_of(entry.ask):
                reason = why_infeasible(entry.ask, queue.shape.on(self._layout), self._teams)
            self._decisions.append(Infeasible(ask=entry.ask, reason=reason))

    def _is_feasible(self, queue: Queue) -> bool:
        """Whether asks of a queue could run on empty members, within the quota of their team."""
        with _on_account_of(queue.entries[0].ask):
            return self._teams.could_ever_run(queue.team, queue.shape.on(self._layout).least_by_sku)


@contextmanager
def _on_account_of(ask: Ask) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise Undecidable(ask, error) from error
