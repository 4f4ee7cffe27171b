"""One cycle: asks by priority, then by the policy's rank with what their teams have had already, each placed, kept room for, or left.

Only the heads of lines are looked at, and of asks of one kind none any more once nothing free would do for it: a cycle costs what it
decides, not what waits.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tuneyard.federation.explaining import Explainer
from tuneyard.federation.finding import NOWHERE, Finder, Found
from tuneyard.federation.fitting import expected_end
from tuneyard.federation.lines import Group, Line, Lines
from tuneyard.federation.policy import Policy
from tuneyard.federation.pools import Key, Pools
from tuneyard.federation.preempting import Preempting
from tuneyard.federation.promising import Promises
from tuneyard.federation.reserving import Reservation, Start, Starts, reservation
from tuneyard.federation.shapes import Shape
from tuneyard.federation.teams import Teams
from tuneyard.federation.world import PRIORITIES, Ask, Fail, Place, Preempt, Running, Undecidable

_LOST_AFTER_GRACES = 2.0
"""Grace periods after its first victim, after which an ask that has not started counts as having lost its room."""
_LENT_WHEN_DUE = 0.1
"""Share of a blocking attempt's predicted remaining time for which a reservation behind it is lent, where it may not be preempted."""
_BACKFILL_LOOK = 256
"""How far behind an ask that a reservation holds back a shorter one of its line is looked for (as Slurm's bf_max_job_test)."""

Hold = Callable[[Running, float], None]
_Head = tuple[float, float, str, str, int, Line, "list[_Head] | None"]
"""Of a line, and where it stands in it; the last is for the first of a kind of which nothing free would do: those behind it, last first."""


class Cycles:
    """Runs one cycle after another over what waits. `hold` is told of each attempt that a decision starts or asks to go."""

    def __init__(self, policy: Policy, pools: Pools, teams: Teams, lines: Lines, hold: Hold) -> None:
        self._policy = policy
        self._pools = pools
        self._teams = teams
        self._lines = lines
        self._hold = hold
        self.reservations: list[Reservation] = []
        """Made in the last cycle."""
        self._starts = Starts(pools, policy.speed)
        self._promises = Promises(teams)
        self._finder = Finder(policy, pools, teams, self._starts, self._promises, self.reservations)
        self.preempting = Preempting(policy, pools, teams, self._promises)
        self._decisions: list[Place | Preempt | Fail] = []
        self._penalties: dict[str, float] = {}
        self._number = 0
        self._reserved = 0
        self._now = 0.0
        self._judged = (-1, -1)
        self._never: list[Line] = []
        self._failed: dict[Key, tuple[int, int]] = {}
        self._owed: list[Ask] = []
        """For whom others were asked to go in this cycle."""

    def explainer(self) -> Explainer:
        """Says why somebody waits, as of the last cycle."""
        return Explainer(self._pools, self._teams, self._starts, self.reservations)

    def forget(self, key: Key) -> None:
        """A task waits no more."""
        self._failed.pop(key, None)

    def run(self, now: float) -> list[Place | Preempt | Fail]:
        """Decide. Raises Undecidable where one ask makes that impossible: what is known then is void."""
        self._number += 1
        self._now = now
        self._reserved = 0
        self._decisions = []
        self._owed.clear()
        self.reservations.clear()
        self._promises.begin()
        self.preempting.begin(now)
        self._penalties = self._had_already(now)
        self._judge()
        for priority in self._lines.priorities():
            if self._decide(self._heads(self._lines.groups(priority))):
                break
        self._owe()
        return self._decisions

    def ahead(self, key: Key, now: float) -> int:
        """How many of those who wait are looked at before this one. Raises KeyError where it does not wait."""
        found = self._lines.get(key)
        if found is None:
            raise KeyError("/".join(key))
        self._penalties = self._had_already(now)
        line, entry = found
        own = self._place_in_line(line, line.entries.index(entry))
        return sum(self._place_in_line(other, at) < own for other in self._lines.all() for at in range(len(other.entries)))

    # --- the order

    def _place_in_line(self, line: Line, at: int) -> tuple[int, float, float, str, str]:
        value, created, job, task = self._head(line, at)[:4]
        return (-PRIORITIES[line.entries[at].ask.priority], value, created, job, task)

    def _had_already(self, now: float) -> dict[str, float]:
        """Seconds by which a team's asks are put back."""
        if not self._policy.fairness_s:
            return {}
        shares = self._teams.shares(self._pools.capacity(), now)
        if self._policy.fairness == "halving":
            return {name: self._policy.fairness_s * (1 - 2.0**-share) for name, share in shares.items()}
        return {name: self._policy.fairness_s * min(share, 100.0) for name, share in shares.items()}

    def _heads(self, groups: Iterable[Group]) -> list[_Head]:
        """Who is looked at first: the head of each line; of a kind for which nothing free would do, only of those lines that others may be
        asked to make room for, and the first of the rest, which may be kept room for."""
        heads: list[_Head] = []
        for group in groups:
            lines = [line for line in group.lines.values() if not line.never]
            if lines:
                with _on_account_of(lines[0].entries[0].ask):
                    heads += self._heads_of(group.shape, lines)
        heapq.heapify(heads)
        return heads

    def _heads_of(self, shape: Shape, lines: Sequence[Line]) -> list[_Head]:
        if self._policy.strict or shape.has_room(self._pools):
            return [self._head(line, 0) for line in lines]
        shape.blocked_in = self._number
        heads: list[_Head] = []
        rest: list[_Head] = []
        for line in lines:
            head = self._head(line, 0)
            (heads if self.preempting.may(line.entries[0].ask) else rest).append(head)
        if rest and self._may_reserve():
            rest.sort(reverse=True)
            heads.append((*rest.pop()[:-1], rest))
        return heads

    def _head(self, line: Line, at: int) -> _Head:
        entry = line.entries[at]
        if entry.ask.owed_since is not None:
            return (entry.rank, entry.created, entry.job, entry.task, at, line, None)
        put_back_s = self._penalties.get(line.team, 0.0) + (self._policy.borrowing_s if self._would_borrow(line) else 0.0)
        return (entry.rank + put_back_s, entry.created, entry.job, entry.task, at, line, None)

    def _would_borrow(self, line: Line) -> bool:
        """Whether their team has nothing left of its own, on whatever SKU would do for a line. Who takes the last of it and more does
        not, unless the policy counts the whole ask: a team's large asks stay before its small ones."""
        if not self._policy.borrowing_s or self._teams[line.team].team.quota is None:
            return False
        gpus = line.shape.ask.worlds[0] if self._policy.borrows_whole else 1
        return not any(self._teams.within_quota(line.team, sku, gpus) for sku in line.shape.skus(self._pools))

    def _decide(self, heads: list[_Head]) -> bool:
        """Go through the asks of one priority. True where nobody further may be looked at."""
        while heads:
            *_, at, line, behind = heapq.heappop(heads)
            if behind is not None:
                with _on_account_of(line.entries[at].ask):
                    if self._may_reserve() and not self._reserve(line.entries[at].ask, line.shape) and behind:
                        heapq.heappush(heads, (*behind.pop()[:-1], behind))
                continue
            if line.shape.blocked_in == self._number and not self._may_reserve() and not self.preempting.may(line.entries[at].ask):
                if self._policy.strict:
                    return True
                continue
            with _on_account_of(line.entries[at].ask):
                following = self._look_at(line, at)
            if self._policy.strict and following is None:
                return True
            if following is not None and following < len(line.entries):
                heapq.heappush(heads, self._head(line, following))
        return False

    # --- one ask

    def _look_at(self, line: Line, at: int) -> int | None:
        """Decide about one ask. Who of its line is next; None: nobody."""
        entry, shape = line.entries[at], line.shape
        if self._is_held(entry.ask, shape):
            return self._shorter(line, at + 1, shape.held_s)
        found = self._finder.find(entry.ask, shape, self._now) if shape.blocked_in != self._number else NOWHERE
        if found.pool is not None and found.option is not None:
            self._start(self._finder.place(entry.ask, shape, found, self._now))
            return at
        if not found.better_later and self._make_room(entry.ask, shape):
            return at + 1
        if found.held_s is not None:
            self._remember_held(shape, found)
            return self._shorter(line, at + 1, found.held_s)
        if found.lacks_quota:
            if self._policy.reserves_quota and not self._teams[line.team].team.closed:
                self._promises.make_when_free(line.team, found.lacks_quota, shape.first(self._pools), self._now)
            return None
        self._reserve(entry.ask, shape)
        if not found.better_later:
            shape.blocked_in = self._number
        return None

    def _start(self, place: Place) -> None:
        self._decisions.append(place)
        attempt = running_of(place, self._now)
        if self._promises:
            self._promises.take(attempt.team, attempt.sku, attempt.gpus, attempt.ends)
        self._hold(attempt, self._now)

    def _make_room(self, ask: Ask, shape: Shape) -> bool:
        """Ask others to go, where the ask may. True if room is being made for it."""
        if not self.preempting.may(ask) or self._finder.waits_for_more(ask, shape, self._now):
            return False
        making = self.preempting.make_room(ask, shape, self._now, self.reservations)
        for going in making.going:
            self._decisions.append(going)
            self._hold(replace(going.victim, stopping=True, ends=self._now + self._policy.grace_s), self._now)
        if making.going and self._policy.owes_freed:
            self._owed.append(ask)
        if making.kept is not None:
            smallest = ask.smallest(making.kept.pool.sku.name)
            if self._has_lost_room(ask):
                self._keep(ask, making.kept, smallest, self._now + self._policy.grace_s, self._now)
            else:
                self._keep(ask, making.kept, smallest)
        return bool(making.going) or making.kept is not None

    def _has_lost_room(self, ask: Ask) -> bool:
        """Whether others have gone for it, and it has not started: somebody took what they left, on the word of a job that was to end and
        runs on. Nobody is believed then."""
        return ask.owed_since is not None and self._now - ask.owed_since > _LOST_AFTER_GRACES * self._policy.grace_s

    def _owe(self) -> None:
        """From the next cycle on those for whom others go are looked at before all of their priority: whoever went would else take what
        it has freed, and be asked again."""
        for ask in self._owed:
            if ask.owed_since is None and self._lines.remove((ask.job, ask.task)) is not None:
                self._lines.add(replace(ask, owed_since=self._now))

    def _keep(self, ask: Ask, kept: Reservation, workers: int, back_by: float = -math.inf, now: float = -math.inf) -> None:
        self.reservations.append(kept)
        self._promises.make(ask.team, kept.pool.sku.name, workers, kept.until, back_by, now)

    def _may_reserve(self) -> bool:
        return self._reserved < self._policy.reservations

    def _reserve(self, ask: Ask, shape: Shape) -> bool:
        """Keep room for one of the first who wait."""
        if not self._may_reserve():
            return False
        start = self._finder.earliest(ask, shape, self._now)
        if start is None:
            return False
        self._reserved += 1
        lent_until = self._drained_from(ask, start) if self._is_due(ask) else math.inf
        self._keep(ask, reservation((ask.job, ask.task), start, lent_until=lent_until), shape.first(self._pools))
        return True

    def _drained_from(self, ask: Ask, start: Start) -> float:
        """Until when what is kept for an ask that is due is lent all the same: for a tenth of the time that somebody still runs who will
        never be asked to go for it, however long it waits. To empty machines earlier helps nobody."""
        stays = [expected_end(each.ends, self._now) for each in start.after if not self.preempting.may_ever_go(each, ask, self._now)]
        return self._now + _LENT_WHEN_DUE * (max(stays) - self._now) if stays else -math.inf

    def _is_due(self, ask: Ask) -> bool:
        """Whether an ask has waited past its rank. What is kept for it is hardly lent any more: predictions that are too
        short would put it off, and whoever fills the gap by them, again and again."""
        found = self._lines.get((ask.job, ask.task))
        return self._policy.order == "stretch" and found is not None and self._now >= found[1].rank

    # --- behind those that a reservation holds back

    def _is_held(self, ask: Ask, shape: Shape) -> bool:
        """Whether it is known already that all room for asks of its kind is kept from those as long as this."""
        return shape.held_in == self._number and ask.seconds * shape.fastest(self._pools, self._policy.speed) > shape.held_s

    def _remember_held(self, shape: Shape, found: Found) -> None:
        if found.held_s is not None and not found.lacks_quota and not found.better_later:
            shape.held_in, shape.held_s = self._number, found.held_s

    def _shorter(self, line: Line, at: int, longest_s: float) -> int | None:
        """The next ask of a line that may end within so long."""
        fastest = line.shape.fastest(self._pools, self._policy.speed)
        if line.shortest_s * fastest > longest_s:
            return None
        for index in range(at, min(len(line.entries), at + _BACKFILL_LOOK)):
            if line.entries[index].ask.seconds * fastest <= longest_s:
                return index
        return None

    # --- what could never run

    def _judge(self) -> None:
        """Say once of each ask that could never run that it could not: once for each layout of members and rules of teams."""
        if not self._pools.members:
            return
        stamp = (self._pools.layout, self._teams.version)
        lines: Iterable[Line] = self._lines.fresh if stamp == self._judged else list(self._lines.all())
        self._never = [line for line in self._never if line.entries and stamp == self._judged]
        for line in lines:
            if line.entries:
                with _on_account_of(line.entries[0].ask):
                    line.never = bool(self._why_never(line.entries[0].ask, line.shape))
                if line.never:
                    self._never.append(line)
        self._lines.fresh.clear()
        self._judged = stamp
        unsaid = [(entry, line.shape) for line in self._never for entry in line.entries if self._failed.get(entry.key) != stamp]
        for entry, shape in sorted(unsaid, key=lambda each: (each[0].created, each[0].key)):
            self._failed[entry.key] = stamp
            self._decisions.append(Fail(ask=entry.ask, reason=self._why_never(entry.ask, shape)))

    def _why_never(self, ask: Ask, shape: Shape) -> str:
        return self.explainer().why_never(ask, shape)


@contextmanager
def _on_account_of(ask: Ask) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise Undecidable(ask, error) from error


def running_of(place: Place, now: float) -> Running:
    """A placement as an attempt that starts now."""
    ask = place.ask
    return Running(
        job=ask.job,
        task=ask.task,
        team=ask.team,
        priority=ask.priority,
        cluster=place.cluster,
        sku=place.sku,
        nodes=place.nodes,
        started=now,
        ends=now + place.seconds,
        saved=now,
        preemptible=ask.preemptible,
    )
