"""The scheduler: changes keep its state up to date, and each cycle decides about all waiting asks.

The Python scheduler runs where the native core was not built, and tests compare the core with it. Its state follows from the world: a
scheduler made from a snapshot decides the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tuneyard.federation.cycle import Cycle, Outcome
from tuneyard.federation.explanations import Explanations, placement_words, why_infeasible
from tuneyard.federation.policy import Policy, policy_of
from tuneyard.federation.pools import Key, Pools
from tuneyard.federation.preemption import Failures
from tuneyard.federation.queues import Queues
from tuneyard.federation.reservations import Reservation
from tuneyard.federation.teams import Teams
from tuneyard.federation.world import Ask, Infeasible, Member, Place, Preempt, Running, Team, Wait, World


class Scheduler:
    """Decides by one policy. Its answers follow from the changes alone. `new_scheduler` makes the fastest scheduler for a policy."""

    def __init__(self, policy: Policy | str = "tuneyard") -> None:
        self.policy = policy_of(policy)
        self._pools = Pools()
        self._teams = Teams(self.policy.half_life_s)
        self._queues = Queues(self.policy)
        self._running: dict[Key, Running] = {}
        self._failures = Failures(self._pools, self._teams)
        self._last = Outcome()

    @classmethod
    def of(cls, world: World, policy: Policy | str, now: float) -> Scheduler:
        """A scheduler with the state of a world."""
        made = cls(policy)
        made._take_in(world, now)
        return made

    def _take_in(self, world: World, now: float) -> None:
        held: Counter[tuple[str, str]] = Counter()
        for attempt in world.running:
            held.update({(attempt.cluster, name): gpus for name, gpus in attempt.nodes.items()})
        for member in sorted(world.members, key=lambda member: member.name):
            nodes = tuple(replace(node, free=node.free + held[member.name, node.name]) for node in member.nodes)
            self.set_member(replace(member, nodes=nodes))
        for team in sorted(world.teams, key=lambda team: team.name):
            self.set_team(team)
        for attempt in sorted(world.running, key=lambda attempt: attempt.key):
            self.hold(attempt, now)
        for ask in sorted(world.asks, key=lambda ask: (ask.created, ask.job, ask.task)):
            self.add(ask)

    # --- changes

    def set_member(self, member: Member) -> None:
        """Set a member. `Node.free` counts GPUs that pods of others leave; attempts come by `hold`."""
        self._pools.set_member(member)

    def remove_member(self, name: str) -> None:
        """Remove a member. Its attempts hold their GPUs until they are released."""
        self._pools.remove_member(name)

    def set_team(self, team: Team) -> None:
        """Set a team."""
        self._teams.set_team(team)

    def add(self, ask: Ask) -> None:
        """Add an ask, or replace the ask of its task. A running task is not added."""
        key = (ask.job, ask.task)
        if key in self._running:
            return
        known = self._queues.get(key)
        if known is not None:
            if known[1].ask == ask:
                return
            self.withdraw(*key)
        self._queues.add(ask)
        self._teams[ask.team].waits += 1

    def withdraw(self, job: str, task: str) -> None:
        """Remove the ask of a task."""
        ask = self._queues.remove((job, task))
        if ask is not None:
            self._teams[ask.team].waits -= 1

    def hold(self, attempt: Running, now: float) -> None:
        """Set an attempt, which holds GPUs. Its task waits no more."""
        key = (attempt.job, attempt.task)
        self.withdraw(*key)
        before = self._running.get(key)
        if before == attempt:
            return
        if before is not None and (before.cluster, before.sku) != (attempt.cluster, attempt.sku):
            self.release(*key, now)
            before = None
        if before is not None:
            self._count(before, now, -1)
        self._count(attempt, now, 1)
        self._pools.hold(attempt)
        self._running[key] = attempt

    def release(self, job: str, task: str, now: float) -> None:
        """Remove an attempt, which has ended and holds no GPUs any more."""
        attempt = self._running.pop((job, task), None)
        if attempt is not None:
            self._pools.release(attempt)
            self._count(attempt, now, -1)

    def _count(self, attempt: Running, now: float, sign: int) -> None:
        if not attempt.ended:
            self._teams.hold(attempt, now, sign)

    # --- state

    @property
    def pools(self) -> Pools:
        """Pools and their free GPUs."""
        return self._pools

    @property
    def teams(self) -> Teams:
        """GPUs that teams hold and have used."""
        return self._teams

    @property
    def asks(self) -> Sequence[Ask]:
        """All asks."""
        return list(self._queues)

    @property
    def waiting(self) -> int:
        """The number of asks."""
        return len(self._queues)

    @property
    def running(self) -> Iterable[Running]:
        return self._running.values()

    @property
    def reservations(self) -> Sequence[Reservation]:
        """Reservations of the last cycle."""
        return self._last.reservations

    @property
    def unfinished(self) -> bool:
        """Whether the last cycle ended before victims were searched for all asks. Another cycle continues."""
        return self._last.unfinished

    @property
    def again_at(self) -> float:
        """When another cycle may decide more without a change: attempts that the last cycle spared can be preempted then."""
        return self._last.again_at

    def attempt(self, job: str, task: str) -> Running | None:
        return self._running.get((job, task))

    def ask(self, job: str, task: str) -> Ask | None:
        """The ask of a task. None: it does not wait."""
        found = self._queues.get((job, task))
        return found[1].ask if found is not None else None

    def explain(self, job: str, task: str, now: float) -> Wait:
        """Why a task waits, by member, as of the last cycle. Raises KeyError where it does not wait."""
        found = self._queues.get((job, task))
        if found is None:
            raise KeyError(f"{job}/{task}")
        explanations = Explanations(self.policy, self._pools, self._teams, self.reservations, now)
        return explanations.why_waiting(found[1].ask, found[0].shape.on(self._pools.layout))

    def why_never(self, ask: Ask) -> str:
        """Why a waiting ask could not run on empty members, and a remedy. Empty: it could."""
        found = self._queues.get((ask.job, ask.task))
        return why_infeasible(ask, found[0].shape.on(self._pools.layout), self._teams) if found is not None else ""

    def ahead(self, job: str, task: str, now: float) -> int:
        """The number of asks that a cycle considers before a task's. Raises KeyError where the task does not wait."""
        return self._cycle(now).ahead((job, task))

    def score(self, place: Place) -> str:
        """Size, duration, price and data of a placement, for people."""
        return placement_words(place, self._pools)

    def world(self, now: float) -> World:
        """The state as a snapshot, from which `of` makes a scheduler that decides the same. `Node.free` is negative where attempts hold
        more GPUs than the node has."""
        accounts = self._teams.all()
        teams = tuple(replace(each.team, used_s=self._teams.usage(each.team.name, now), used_at=now) for each in accounts)
        members = tuple(self._pools.snapshot())
        return World(members=members, asks=tuple(self._queues), running=tuple(self._running.values()), teams=teams)

    # --- decisions

    def cycle(self, now: float) -> list[Place | Preempt | Infeasible]:
        """Decide. Placed attempts hold their GPUs and victims count as stopping from now on. An infeasible ask is refused once."""
        self._last = self._cycle(now).run()
        return list(self._last.decisions)

    def _cycle(self, now: float) -> Cycle:
        return Cycle(self.policy, self._pools, self._teams, self._queues, self._failures, now, self.hold)
