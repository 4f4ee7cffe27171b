"""The scheduler on a core of C++: the same decisions as the Python scheduler, many times as fast.

The core holds the state and decides. The Python scheduler explains (`explain`, `ahead`), and gets all changes before it does. It is the
oracle of tests, and decides where the core was not built.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from tuneyard.federation.cycle import Outcome
from tuneyard.federation.policy import RULES_OF_PEERS, Policy, by_roofline, policy_of, speed_factor
from tuneyard.federation.pools import Key, Pool, Pools
from tuneyard.federation.preemption import why_preempted
from tuneyard.federation.reservations import Reservation
from tuneyard.federation.scheduler import Scheduler
from tuneyard.federation.teams import Teams
from tuneyard.federation.world import (
    PRIORITIES,
    Ask,
    Decision,
    Infeasible,
    Member,
    Place,
    Preempt,
    Running,
    Team,
    Undecidable,
    Wait,
    World,
    running_of,
)

try:
    from tuneyard.federation import _core
except ImportError:  # there was no compiler
    _core = None  # type: ignore[assignment]

SWITCH = "TUNEYARD_NATIVE"
"""An environment variable. With 0, the Python scheduler decides."""


def schedule(world: World, policy: Policy | str = "tuneyard", now: float = 0.0) -> list[Decision]:
    """Decide about each ask of a snapshot. First come Infeasible, Place and Preempt in the order of decision, then Wait by priority and
    age. `now`: seconds since the epoch.

    Pure: the same arguments give the same answer, in any order of their parts. Raises KeyError on an unknown policy.
    """
    scheduler = scheduler_of(world, policy, now)
    decisions: list[Decision] = list(scheduler.cycle(now))
    decided = {(each.ask.job, each.ask.task) for each in decisions if not isinstance(each, Preempt)}
    for ask in sorted(scheduler.asks, key=lambda ask: (-PRIORITIES[ask.priority], ask.created, ask.job, ask.task)):
        if (ask.job, ask.task) not in decided:
            decisions.append(scheduler.explain(ask.job, ask.task, now))
    return decisions


def new_scheduler(policy: Policy | str = "tuneyard") -> Scheduler:
    """The fastest scheduler for a policy. Raises KeyError on an unknown policy."""
    settings = policy_of(policy)
    return NativeScheduler(settings) if _may_be_native(settings) else Scheduler(settings)


def scheduler_of(world: World, policy: Policy | str, now: float) -> Scheduler:
    """The fastest scheduler for a policy, with the state of a world."""
    settings = policy_of(policy)
    return NativeScheduler.of(world, settings, now) if _may_be_native(settings) else Scheduler.of(world, settings, now)


def _may_be_native(policy: Policy) -> bool:
    """Whether the core decides by a policy. It predicts speed by roofline alone, and has no rules of peers."""
    ours = Policy(name=policy.name)
    of_peers = any(getattr(policy, rule) != getattr(ours, rule) for rule in RULES_OF_PEERS)
    return _core is not None and policy.speed is by_roofline and not of_peers and os.environ.get(SWITCH) != "0"


class NativeScheduler(Scheduler):
    """Decides in the core. Raises ImportError where it was not built."""

    def __init__(self, policy: Policy | str = "tuneyard") -> None:  # the core keeps the state of the base class
        if _core is None:
            raise ImportError("the scheduler's core is not built: make setup")
        self.policy = policy_of(policy)
        self._core = _core.Core(
            self.policy, Place, object.__new__, running_of, _stopped, _owed, partial(_preempt, self.policy), speed_factor
        )
        self._now = 0.0
        self._unreadable: dict[Key, tuple[Ask, Exception]] = {}
        """Asks that the core cannot read. A cycle raises Undecidable for the first."""
        self._known: Scheduler | World = World(members=(), asks=())
        """The Python scheduler, or the world from which the first explanation makes it."""
        self._is_told = False
        """Whether the Python scheduler has all changes."""
        self._members: dict[str, Member | None] = {}
        self._told_teams: dict[str, Team] = {}

    @classmethod
    def of(cls, world: World, policy: Policy | str, now: float) -> Scheduler:
        made = cls(policy)
        made._now = now
        try:
            made._core.load(world, now)
        except Exception:  # noqa: BLE001 - taken in one by one, the unreadable ask is found
            made = cls(policy)
            made._take_in(world, now)
            return made
        made._known = world
        return made

    # --- changes

    def set_member(self, member: Member) -> None:
        self._is_told = False
        self._core.set_member(member)
        self._members.pop(member.name, None)
        self._members[member.name] = member

    def remove_member(self, name: str) -> None:
        self._is_told = False
        self._core.remove_member(name)
        self._members[name] = None

    def set_team(self, team: Team) -> None:
        self._is_told = False
        self._core.set_team(team)
        self._told_teams[team.name] = team

    def add(self, ask: Ask) -> None:
        if self._unreadable:
            self._unreadable.pop((ask.job, ask.task), None)
        self._is_told = False
        try:
            self._core.add(ask)
        except Exception as error:  # noqa: BLE001 - the next cycle raises it, on account of this ask alone
            self.withdraw(ask.job, ask.task)
            self._unreadable[ask.job, ask.task] = (ask, error)

    def withdraw(self, job: str, task: str) -> None:
        if self._unreadable:
            self._unreadable.pop((job, task), None)
        self._is_told = False
        self._core.withdraw(job, task)

    def hold(self, attempt: Running, now: float) -> None:
        self._now = now
        if self._unreadable:
            self._unreadable.pop(attempt.key, None)
        self._is_told = False
        self._core.hold(attempt, now)

    def release(self, job: str, task: str, now: float) -> None:
        self._now = now
        self._is_told = False
        self._core.release(job, task, now)

    # --- state

    @property
    def running(self) -> Iterable[Running]:
        return self._core.running()

    @property
    def asks(self) -> Sequence[Ask]:
        return [*self._core.asks(), *(ask for ask, _ in self._unreadable.values())]

    @property
    def waiting(self) -> int:
        return self._core.waiting() + len(self._unreadable)

    @property
    def pools(self) -> Pools:
        return self._python().pools

    @property
    def teams(self) -> Teams:
        return self._python().teams

    @property
    def reservations(self) -> Sequence[Reservation]:
        return self._python().reservations

    @property
    def unfinished(self) -> bool:
        return self._core.unfinished()

    @property
    def again_at(self) -> float:
        return self._core.again_at()

    def attempt(self, job: str, task: str) -> Running | None:
        return self._core.attempt(job, task)

    def ask(self, job: str, task: str) -> Ask | None:
        unreadable = self._unreadable.get((job, task))
        return self._core.ask(job, task) if unreadable is None else unreadable[0]

    def explain(self, job: str, task: str, now: float) -> Wait:
        return self._python().explain(job, task, now)

    def ahead(self, job: str, task: str, now: float) -> int:
        return self._python().ahead(job, task, now)

    def score(self, place: Place) -> str:
        return self._python().score(place)

    def world(self, now: float) -> World:
        self._now = now
        self._is_told = False
        self._core.settle(now)
        return self._python().world(now)

    # --- decisions

    def cycle(self, now: float) -> list[Place | Preempt | Infeasible]:
        for ask, error in self._unreadable.values():
            raise Undecidable(ask, error) from error
        self._now = now
        self._is_told = False
        decisions, never = self._core.cycle(now)
        if never:
            never.sort(key=lambda ask: (ask.created, ask.job, ask.task))
            decisions[:0] = [Infeasible(ask=ask, reason=self._python().why_never(ask)) for ask in never]
        return decisions

    # --- the Python scheduler

    def _python(self) -> Scheduler:
        """The Python scheduler, with all changes."""
        if isinstance(self._known, World):
            self._known = Scheduler.of(self._known, self.policy, self._now)
        known = self._known
        if self._is_told:
            return known
        for name, member in self._members.items():
            if member is None:
                known.remove_member(name)
            else:
                known.set_member(member)
        for team in self._told_teams.values():
            known.set_team(team)
        for job, task in self._core.changed():
            attempt, ask = self._core.attempt(job, task), self._core.ask(job, task)
            if attempt is None:
                known.release(job, task, self._now)
            else:
                known.hold(attempt, self._now)
            if ask is None:
                known.withdraw(job, task)
            else:
                known.add(ask)
        self._members, self._told_teams = {}, {}
        for name, (used_s, at) in self._core.usage().items():
            known.teams.set_usage(name, used_s, at)
        reservations = tuple(
            Reservation(key, _pool(known.pools, cluster, sku), until, needs, withheld, lent_until)
            for key, cluster, sku, until, needs, withheld, lent_until in self._core.reservations()
        )
        known._last = Outcome(reservations=reservations)
        self._is_told = True
        return known


def _pool(pools: Pools, cluster: str, sku: str) -> Pool:
    found = pools.get(cluster, sku)
    assert found is not None, f"{cluster} has no {sku}"
    return found


def _stopped(attempt: Running, ends: float) -> Running:
    return replace(attempt, stopping=True, ends=ends)


def _owed(ask: Ask, since: float) -> Ask:
    return replace(ask, owed_since=since)


def _preempt(policy: Policy, victim: Running, ask: Ask, now: float, has_starved: bool) -> Preempt:
    return Preempt(victim=victim, ask=ask, reason=why_preempted(ask, victim, now, policy, has_starved=has_starved))
