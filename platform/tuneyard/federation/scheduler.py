"""The scheduler: what it knows of the world is brought up to date by changes, and each cycle decides what can be decided now.

Nothing is remembered that the world does not hold: a scheduler made anew from a snapshot decides the same. Asks are looked at by priority,
then by the policy's rank with what their teams have had already; but only the heads of lines are looked at (see `lines`), so that a cycle
costs what it decides, not what waits.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tuneyard.federation.choosing import Chooser
from tuneyard.federation.explaining import Explainer
from tuneyard.federation.lines import Entry, Line, Lines
from tuneyard.federation.policy import Policy, policy_of
from tuneyard.federation.pools import Indices, Key, Pool, Pools
from tuneyard.federation.preempting import Preempting
from tuneyard.federation.reserving import Reservation, Starts, reservation, withheld_in
from tuneyard.federation.shapes import Option, Shape
from tuneyard.federation.teams import Teams
from tuneyard.federation.world import PRIORITIES, Ask, Decision, Fail, Member, Place, Preempt, Running, Team, Wait, World

_BACKFILL_LOOK = 256
"""How far behind an ask that a reservation holds back a shorter one of its line is looked for (as Slurm's bf_max_job_test)."""


@dataclass(frozen=True)
class _Found:
    """What looking for room for an ask came to. `held_s`: it would fit if it ended within so long, and others are kept that room for."""

    pool: Pool | None = None
    option: Option | None = None
    by_quota: bool = False
    held_s: float | None = None
    better_later: bool = False


_NOWHERE = _Found()
_Head = tuple[float, float, str, str, int, Line]


class Scheduler:
    """Decides for one policy. Not pure itself, but what it answers follows from the changes alone."""

    def __init__(self, policy: Policy | str = "tuneyard") -> None:
        self.policy = policy_of(policy)
        self.pools = Pools()
        self.teams = Teams(self.policy.half_life_s)
        self.lines = Lines(self.policy)
        self.reservations: list[Reservation] = []
        """Made in the last cycle."""
        self._running: dict[Key, Running] = {}
        self._choose = Chooser(self.policy, self.pools)
        self._preempting = Preempting(self.policy, self.pools, self.teams)
        self._cycle = 0
        self._reserved = 0
        self._failed: dict[Key, int] = {}
        self._starts = Starts(self.pools, self.policy.speed)

    # --- changes

    def set_member(self, member: Member) -> None:
        """Take in a member. `free` of its nodes counts what others leave; attempts are known by `hold`."""
        self.pools.set_member(member)

    def remove_member(self, name: str) -> None:
        self.pools.remove_member(name)

    def set_team(self, team: Team) -> None:
        self.teams.set_team(team)

    def add(self, ask: Ask) -> None:
        """A task waits; replaces what was known of its waiting. One that runs already is not added."""
        if (ask.job, ask.task) in self._running:
            return
        known = self.lines.get((ask.job, ask.task))
        if known is not None:
            if known[1].ask == ask:
                return
            self.withdraw(ask.job, ask.task)
        if self.lines.add(ask):
            self.teams[ask.team].waits += 1

    def withdraw(self, job: str, task: str) -> None:
        """A task waits no more."""
        ask = self.lines.remove((job, task))
        if ask is not None:
            self.teams[ask.team].waits -= 1
            self._failed.pop((job, task), None)

    def hold(self, attempt: Running, now: float = 0.0) -> None:
        """An attempt holds GPUs; replaces what was known of it."""
        key = (attempt.job, attempt.task)
        self.withdraw(*key)
        before = self._running.get(key)
        if before == attempt:
            return
        if before is not None and (before.cluster, before.sku) != (attempt.cluster, attempt.sku):
            self.release(*key, now)
            before = None
        if before is not None:
            self._preempting.count(before, -1)
        if before is None or before.nodes != attempt.nodes or before.team != attempt.team:
            if before is not None:
                self.teams.hold(before, now, -1)
            self.teams.hold(attempt, now)
        self._preempting.count(attempt, 1)
        self.pools.hold(attempt)
        self._running[key] = attempt

    def release(self, job: str, task: str, now: float) -> None:
        """An attempt has ended, and nothing is left of it."""
        attempt = self._running.pop((job, task), None)
        if attempt is not None:
            self._preempting.count(attempt, -1)
            self.pools.release(attempt)
            self.teams.hold(attempt, now, -1)

    # --- what is known

    @property
    def running(self) -> Iterable[Running]:
        return self._running.values()

    def attempt(self, job: str, task: str) -> Running | None:
        return self._running.get((job, task))

    def wait(self, job: str, task: str, now: float) -> Wait:
        """Why a task waits, member by member, as of the last cycle. Raises KeyError where it does not wait."""
        found = self.lines.get((job, task))
        if found is None:
            raise KeyError(f"{job}/{task}")
        return self._explainer().wait(found[1].ask, found[0].shape, now)

    # --- the cycle

    def cycle(self, now: float) -> list[Place | Preempt | Fail]:
        """Decide. What is placed is held from now on; whoever is to go counts as stopping; a Fail is said once."""
        self._cycle += 1
        self.reservations = []
        self._reserved = 0
        self._preempting.begin()
        decisions: list[Place | Preempt | Fail] = []
        penalties = self._penalties(now)
        by_priority: dict[int, list[Line]] = {}
        for line in self.lines.lines():
            by_priority.setdefault(line.priority, []).append(line)
        for priority in sorted(by_priority, reverse=True):
            heads = [self._head(line, 0, penalties) for line in by_priority[priority]]
            heapq.heapify(heads)
            if self._decide(heads, penalties, decisions, now):
                break
        return decisions

    def _penalties(self, now: float) -> dict[str, float]:
        if not self.policy.fairness_s:
            return {}
        shares = self.teams.shares(self.pools.capacity(), now)
        return {name: self.policy.fairness_s * min(share, 100.0) for name, share in shares.items()}

    @staticmethod
    def _head(line: Line, at: int, penalties: dict[str, float]) -> _Head:
        entry = line.entries[at]
        return (entry.rank + penalties.get(line.team, 0.0), entry.created, entry.job, entry.task, at, line)

    def _decide(self, heads: list[_Head], penalties: dict[str, float], decisions: list[Place | Preempt | Fail], now: float) -> bool:
        """Go through the asks of one priority. True where nobody further may be looked at."""
        while heads:
            *_, at, line = heapq.heappop(heads)
            entry, shape = line.entries[at], line.shape
            found = self._find(entry.ask, shape, now) if shape.blocked_in != self._cycle else _NOWHERE
            following: int | None = None
            if found.pool is not None and found.option is not None:
                decisions.append(self._place(entry.ask, found.pool, found.option, now))
                following = at
            elif self._make_room(entry.ask, shape, decisions, now) or self._say_never(entry, shape, decisions):
                following = at + 1
            elif self.policy.strict:
                return True
            elif found.held_s is not None:
                following = self._shorter(line, at + 1, found.held_s)
            elif not found.by_quota and not found.better_later:
                self._reserve(entry.ask, shape, now)
                shape.blocked_in = self._cycle
            elif found.better_later:
                self._reserve(entry.ask, shape, now)
            if following is not None and following < len(line.entries):
                heapq.heappush(heads, self._head(line, following, penalties))
        return False

    def _find(self, ask: Ask, shape: Shape, now: float) -> _Found:
        """Room for an ask in what is free, kept from nobody and allowed to its team."""
        by_quota = better_later = False
        held_s: float | None = None
        for option in shape.options(self.pools):
            if not option.size:
                if len(option.pools):
                    return _Found(self._choose.choose(ask, option, option.pools), option)
                continue
            ok = option.pools[self.pools.room(option.size)[option.pools] >= option.pods]
            if not len(ok):
                continue
            if ask.avoid:
                ok = self._without_failed(ask, shape, option, ok)
            allowed = self._within_quota(ask, option, ok)
            by_quota = by_quota or len(allowed) < len(ok)
            if self.reservations:
                allowed, longest_s = self._not_kept(ask, option, allowed, now)
                held_s = held_s if longest_s is None else max(held_s or 0.0, longest_s)
            if not len(allowed):
                continue
            if option.workers != ask.worlds[0] and self._is_better_later(ask, shape, option, allowed, now):
                better_later = True
                continue
            return _Found(self._choose.choose(ask, option, allowed), option)
        return _Found(by_quota=by_quota, held_s=held_s, better_later=better_later)

    def _without_failed(self, ask: Ask, shape: Shape, option: Option, ok: Indices) -> Indices:
        """Without pools that would do only with nodes that have failed this task, unless no others ever would."""
        if shape.only_on_failed(self.pools):
            return ok
        return ok[[self._has_others(ask, self.pools.all[index], option) for index in ok.tolist()]]

    @staticmethod
    def _has_others(ask: Ask, pool: Pool, option: Option) -> bool:
        avoided = avoided_in(ask, pool)
        return not avoided or sum(free // option.size for name, free in pool.free.items() if name not in avoided) >= option.pods

    def _within_quota(self, ask: Ask, option: Option, ok: Indices) -> Indices:
        team = self.teams[ask.team].team
        if team.quota is None and not team.closed:
            return ok
        for sku, mask in self.pools.by_sku().items():
            if self.teams.room(ask.team, sku).gpus < option.workers:
                ok = ok[~mask[ok]]
        return ok

    def _not_kept(self, ask: Ask, option: Option, ok: Indices, now: float) -> tuple[Indices, float | None]:
        """Without pools where others are kept the room that it would take for longer; and how short it must be for the best of those."""
        longest_s: float | None = None
        for each in self.reservations:
            index = each.pool.index
            if index not in ok:
                continue
            ends = now + self.policy.speed(ask, each.pool.sku.name, option.workers)
            without = withheld_in(each.pool, self.reservations, ends)
            if without and not _fits(each.pool, option, without):
                ok = ok[ok != index]
                longest_s = max(longest_s or 0.0, each.until - now)
        return ok, longest_s

    def _is_better_later(self, ask: Ask, shape: Shape, option: Option, ok: Indices, now: float) -> bool:
        """Whether an elastic gang would end sooner by waiting for its full size than by starting small now."""
        if not self.policy.reservations:
            return False
        skus = {self.pools.all[index].sku.name for index in ok.tolist()}
        soonest = min(self.policy.speed(ask, sku, option.workers) for sku in skus)
        later = self._starts.earliest(ask, shape, now, self.reservations, self._open(ask, shape))
        return later is not None and later.at + self.policy.speed(ask, later.pool.sku.name, ask.worlds[0]) < now + soonest

    def _place(self, ask: Ask, pool: Pool, option: Option, now: float) -> Place:
        seconds = self.policy.speed(ask, pool.sku.name, option.workers)
        nodes: dict[str, int] = {}
        if option.size:
            without = withheld_in(pool, self.reservations, now + seconds)
            avoided = avoided_in(ask, pool)
            if avoided and _fits(pool, option, {**without, **{name: pool.free.get(name, 0) for name in avoided}}):
                without = {**without, **{name: pool.free.get(name, 0) for name in avoided}}
            nodes = pool.pick(option.pods, option.size, without)
        place = Place(
            ask=ask,
            cluster=pool.member,
            sku=pool.sku.name,
            workers=option.workers,
            pods=option.pods,
            nodes=nodes,
            seconds=seconds,
        )
        self.hold(running_of(place, now), now)
        return place

    def _make_room(self, ask: Ask, shape: Shape, decisions: list[Place | Preempt | Fail], now: float) -> bool:
        """Ask others to go, where the ask may. True if room is being made for it."""
        if not self._preempting.may(ask):
            return False
        making = self._preempting.make_room(ask, shape, now, self.reservations)
        for going in making.going:
            decisions.append(going)
            self.hold(replace(going.victim, stopping=True, ends=now + self.policy.grace_s), now)
        if making.kept is not None:
            self.reservations.append(making.kept)
        return bool(making.going) or making.kept is not None

    def _say_never(self, entry: Entry, shape: Shape, decisions: list[Place | Preempt | Fail]) -> bool:
        """Whether nothing could ever run the ask; that is said once for each layout of the members."""
        if not self.pools.members:
            return False
        explainer = self._explainer()
        reason = "" if shape.ever(self.pools) else explainer.why_never(entry.ask, shape)
        reason = reason or explainer.why_never_by_quota(entry.ask, shape)
        if reason and self._failed.get(entry.key) != self.pools.layout:
            self._failed[entry.key] = self.pools.layout
            decisions.append(Fail(ask=entry.ask, reason=reason))
        return bool(reason)

    def _reserve(self, ask: Ask, shape: Shape, now: float) -> None:
        """Keep room for one of the first who wait."""
        if self._reserved >= self.policy.reservations:
            return
        start = self._starts.earliest(ask, shape, now, self.reservations, self._open(ask, shape))
        if start is not None:
            self._reserved += 1
            self.reservations.append(reservation((ask.job, ask.task), start))

    def _open(self, ask: Ask, shape: Shape) -> Iterator[Pool]:
        """Pools that may be used for an ask, as far as its team's quota goes."""
        for pool in shape.allowed(self.pools):
            if pool.usable and self.teams.room(ask.team, pool.sku.name).gpus >= ask.worlds[0]:
                yield pool

    def _shorter(self, line: Line, at: int, longest_s: float) -> int | None:
        """The next ask of a line that may end within so long."""
        fastest = self._fastest(line)
        for index in range(at, min(len(line.entries), at + _BACKFILL_LOOK)):
            if line.entries[index].ask.seconds * fastest <= longest_s:
                return index
        return None

    def _fastest(self, line: Line) -> float:
        """The least share of `Ask.seconds` that an ask of this line takes anywhere, with its first world."""
        ask = replace(line.shape.ask, seconds=1.0)
        skus = {pool.sku.name for pool in line.shape.allowed(self.pools)}
        return min((self.policy.speed(ask, sku, ask.worlds[0]) for sku in skus), default=1.0)

    def _explainer(self) -> Explainer:
        return Explainer(self.pools, self.teams, self._starts, self.reservations)


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


def schedule(world: World, policy: Policy | str = "tuneyard", now: float = 0.0) -> list[Decision]:
    """A decision for each ask of `world`, and who is to go for it: Place and Preempt in the order in which they were decided, then those
    who wait or could never run, by age. `now`: seconds since the epoch.

    Pure: the same arguments give the same answer, in whatever order their parts come. Raises KeyError on an unknown policy.
    """
    scheduler = scheduler_of(world, policy, now)
    decisions: list[Decision] = list(scheduler.cycle(now))
    decided = {(each.ask.job, each.ask.task) for each in decisions if not isinstance(each, Preempt)}
    for ask in sorted(world.asks, key=lambda ask: (-PRIORITIES[ask.priority], ask.created, ask.job, ask.task)):
        if (ask.job, ask.task) not in decided:
            decisions.append(scheduler.wait(ask.job, ask.task, now))
    return decisions


def scheduler_of(world: World, policy: Policy | str, now: float) -> Scheduler:
    """A scheduler that knows this world."""
    scheduler = Scheduler(policy)
    held: Counter[tuple[str, str]] = Counter()
    for attempt in world.running:
        held.update({(attempt.cluster, name): gpus for name, gpus in attempt.nodes.items()})
    for member in sorted(world.members, key=lambda member: member.name):
        nodes = tuple(replace(node, free=node.free + held[member.name, node.name]) for node in member.nodes)
        scheduler.set_member(replace(member, nodes=nodes))
    for team in sorted(world.teams, key=lambda team: team.name):
        scheduler.set_team(team)
    for attempt in sorted(world.running, key=lambda attempt: (attempt.job, attempt.task)):
        scheduler.hold(attempt, now)
    for ask in sorted(world.asks, key=lambda ask: (ask.created, ask.job, ask.task)):
        scheduler.add(ask)
    return scheduler


def avoided_in(ask: Ask, pool: Pool) -> set[str]:
    """Nodes of a pool that have failed this task."""
    return {node for member, node in ask.avoid if member == pool.member} if ask.avoid else set()


def _fits(pool: Pool, option: Option, without: Mapping[str, int]) -> bool:
    room = sum(len(names) * (free // option.size) for free, names in enumerate(pool.by_free))
    for name, gpus in without.items():
        free = pool.free.get(name, 0)
        room -= free // option.size - max(0, free - gpus) // option.size
    return room >= option.pods
