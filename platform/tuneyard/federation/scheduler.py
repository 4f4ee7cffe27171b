"""The scheduler: what it knows of the world is brought up to date by changes, and each cycle decides what can be decided now.

In Python: what runs where the native core was not built, and what that core is held against in tests.

Nothing is remembered that the world does not hold: a scheduler made anew from a snapshot decides the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tuneyard.federation.choosing import score
from tuneyard.federation.cycle import Cycles
from tuneyard.federation.lines import Lines
from tuneyard.federation.policy import Policy, policy_of
from tuneyard.federation.pools import Key, Pools
from tuneyard.federation.reserving import Reservation
from tuneyard.federation.teams import Teams
from tuneyard.federation.world import Ask, Fail, Member, Place, Preempt, Running, Team, Wait, World


class Scheduler:
    """Decides for one policy. Not pure itself, but what it answers follows from the changes alone. `new_scheduler` makes the fastest."""

    def __init__(self, policy: Policy | str = "tuneyard") -> None:
        self.policy = policy_of(policy)
        self._pools = Pools()
        self._teams = Teams(self.policy.half_life_s)
        self._lines = Lines(self.policy)
        self._running: dict[Key, Running] = {}
        self._cycles = Cycles(self.policy, self._pools, self._teams, self._lines, self.hold)

    @classmethod
    def of(cls, world: World, policy: Policy | str, now: float) -> Scheduler:
        """A scheduler that knows this world."""
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
        """Take in a member. `free` of its nodes counts what others leave; attempts are known by `hold`."""
        self._pools.set_member(member)

    def remove_member(self, name: str) -> None:
        """A member is gone. Its attempts hold what they hold until they are released."""
        self._pools.remove_member(name)

    def set_team(self, team: Team) -> None:
        """Take in a team as it is now."""
        self._teams.set_team(team)

    def add(self, ask: Ask) -> None:
        """A task waits; replaces what was known of its waiting. One that runs already is not added."""
        key = (ask.job, ask.task)
        if key in self._running:
            return
        known = self._lines.get(key)
        if known is not None:
            if known[1].ask == ask:
                return
            self.withdraw(*key)
        self._lines.add(ask)
        self._teams[ask.team].waits += 1

    def withdraw(self, job: str, task: str) -> None:
        """A task waits no more."""
        ask = self._lines.remove((job, task))
        if ask is not None:
            self._teams[ask.team].waits -= 1
            self._cycles.forget((job, task))

    def hold(self, attempt: Running, now: float) -> None:
        """An attempt holds GPUs; replaces what was known of it."""
        key = attempt.key
        self.withdraw(*key)
        before = self._running.get(key)
        if before == attempt:
            return
        if before is not None and (before.cluster, before.sku) != (attempt.cluster, attempt.sku):
            self.release(*key, now)
            before = None
        if before is not None:
            self._cycles.preempting.count(before, -1)
            self._count(before, now, -1)
        self._count(attempt, now, 1)
        self._cycles.preempting.count(attempt, 1)
        self._pools.hold(attempt)
        self._running[key] = attempt

    def release(self, job: str, task: str, now: float) -> None:
        """An attempt has ended, and nothing is left of it."""
        attempt = self._running.pop((job, task), None)
        if attempt is not None:
            self._cycles.preempting.count(attempt, -1)
            self._pools.release(attempt)
            self._count(attempt, now, -1)

    def _count(self, attempt: Running, now: float, sign: int) -> None:
        if not attempt.ended:
            self._teams.hold(attempt, now, sign)

    # --- what is known

    @property
    def pools(self) -> Pools:
        """Free GPUs, as of the last change."""
        return self._pools

    @property
    def teams(self) -> Teams:
        """What teams hold and have used."""
        return self._teams

    @property
    def lines(self) -> Lines:
        """Who waits, in the order in which they are looked at."""
        return self._lines

    @property
    def asks(self) -> Sequence[Ask]:
        """Who waits."""
        return list(self._lines)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._lines)

    @property
    def running(self) -> Iterable[Running]:
        return self._running.values()

    @property
    def reservations(self) -> list[Reservation]:
        """Made in the last cycle."""
        return self._cycles.reservations

    @property
    def unfinished(self) -> bool:
        """Whether the last cycle ended before all asks had looked for somebody to make room: another one would go on."""
        return self._cycles.preempting.unfinished

    @property
    def again_at(self) -> float:
        """When another cycle may decide more though nothing happens until then: somebody who has borrowed may be asked to go."""
        return self._cycles.preempting.again_at

    def attempt(self, job: str, task: str) -> Running | None:
        return self._running.get((job, task))

    def ask(self, job: str, task: str) -> Ask | None:
        """What waits, as it is known; None where it does not wait."""
        found = self._lines.get((job, task))
        return found[1].ask if found is not None else None

    def wait(self, job: str, task: str, now: float) -> Wait:
        """Why a task waits, member by member, as of the last cycle. Raises KeyError where it does not wait."""
        found = self._lines.get((job, task))
        if found is None:
            raise KeyError(f"{job}/{task}")
        return self._cycles.explainer().wait(found[1].ask, found[0].shape, now)

    def why_never(self, ask: Ask) -> str:
        """Why an ask that waits could not run even if all members were empty, and what would help; empty where it could."""
        found = self._lines.get((ask.job, ask.task))
        return self._cycles.explainer().why_never(ask, found[0].shape) if found is not None else ""

    def ahead(self, job: str, task: str, now: float) -> int:
        """How many of those who wait are looked at before a task. Raises KeyError where it does not wait."""
        return self._cycles.ahead((job, task), now)

    def score(self, place: Place) -> str:
        """What spoke for a placement, for people."""
        return score(place, self._pools)

    def world(self, now: float) -> World:
        """All that is known, as a snapshot: `of` makes a scheduler of it that decides the same. A node on which more is held
        than it has is `free` by a negative number."""
        accounts = self._teams.all()
        teams = tuple(replace(each.team, used_s=self._teams.usage(each.team.name, now), used_at=now) for each in accounts)
        members = tuple(self._pools.snapshot())
        return World(members=members, asks=tuple(self._lines), running=tuple(self._running.values()), teams=teams)

    # --- decisions

    def cycle(self, now: float) -> list[Place | Preempt | Fail]:
        """Decide. What is placed is held from now on; whoever is to go counts as stopping; a Fail is said once."""
        return self._cycles.run(now)
