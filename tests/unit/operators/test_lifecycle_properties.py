"""A hub killed between any two writes, members that fail in every way: no attempt starts twice, and nothing is left."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.builders.attempts import NOON, goal, job, pod, process, rayjob, report

from tuneyard.api import Attempt, JobStatus, Phase, PlacementStatus
from tuneyard.federation import Ask, Place
from tuneyard_operators.hub.decisions import Decided, TaskRecord
from tuneyard_operators.hub.goals import Goal
from tuneyard_operators.hub.lifecycle import advance
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.hub.outcomes import Verb
from tuneyard_operators.hub.settings import Settings

SETTINGS = Settings()
PLACEMENT = PlacementStatus(cluster="east", sku="cpu", workers=1, gpus=1, pods=1, nodes={"n1": 1})
KINDS = ("UserError", "NodeLost", "Network", "Storage", "Internal", "Preempted")


@dataclass
class Member:
    """What exists on one member: RayJobs by name, what their attempts report, and how often each was ever created."""

    rayjobs: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    reports: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    created: dict[str, int] = field(default_factory=dict)
    away_since: datetime | None = None

    def observe(self, name: str, now: datetime) -> Observed:
        if self.away_since is not None:
            return Observed(known=False, unreachable_s=(now - self.away_since).total_seconds(), why_unreachable="timed out")
        state = None
        if name in self.reports:
            failure = {"kind": self.failures[name], "message": "broke"} if name in self.failures else None
            state = report(name, phase=self.reports[name], failure=failure)
        here = name in self.rayjobs
        return Observed(rayjob=rayjob() if here else None, report=state, secret=name in self.secrets, pods=[pod(made_s=0)] if here else [])


@dataclass
class World:
    """A hub's stored status, its member, and a clock."""

    goal: Goal
    random: random.Random
    status: JobStatus = field(default_factory=JobStatus)
    member: Member = field(default_factory=Member)
    now: datetime = NOON
    held: bool = False
    gone: bool = False
    waiting: dict[str, TaskRecord] = field(default_factory=dict)
    victims: dict[int, str] = field(default_factory=dict)

    def look(self, *, die: bool) -> None:
        """One look of the hub; `die`: it is killed after a random number of its writes, and its decisions are lost with it."""
        seen = {own.name: self.member.observe(own.name, self.now) for own in self.status.attempts}
        decided = Decided(tasks=self.waiting, placements=dict.fromkeys(self.waiting, PLACEMENT), victims=self.victims)
        outcome = advance(replace(self.goal, has_finalizer=self.held), self.status, seen, decided, self.now, SETTINGS)
        writes = [lambda: setattr(self, "held", True)] if any(a.verb is Verb.ADD_FINALIZER for a in outcome.actions) else []
        writes.append(lambda: setattr(self, "status", outcome.status))
        writes += [lambda action=action: self._act(action.verb, action.attempt) for action in outcome.actions]
        for write in writes[: self.random.randint(0, len(writes)) if die else None]:
            write()
        self.waiting = {} if die else {task: self._decide(ask) for task, ask in outcome.asks.items()}
        self.victims = {}

    def _decide(self, ask: Ask) -> TaskRecord:
        place = Place(ask=ask, cluster="east", sku="cpu", workers=ask.worlds[0], pods=1, nodes={"n1": 1})
        return TaskRecord(ask, place=place if self.random.random() < 0.7 else None)

    def preempt(self) -> None:
        """Another job needs the place of one of the attempts."""
        numbers = [own.number for own in self.status.attempts if own.ended_at is None]
        self.victims = {self.random.choice(numbers): "makes room for maps/other"} if numbers else {}

    def _act(self, verb: Verb, own: Attempt | None) -> None:
        member = self.member
        if verb is Verb.REMOVE_FINALIZER:
            self.gone = True
        if own is None or member.away_since is not None:
            return
        if verb is Verb.START and own.name not in member.rayjobs:
            member.secrets.add(own.name)
            member.rayjobs.add(own.name)
            member.created[own.name] = member.created.get(own.name, 0) + 1
        if verb is Verb.CLEAN:
            member.rayjobs.discard(own.name)
            member.secrets.discard(own.name)
            member.reports.pop(own.name, None)
        if verb is Verb.STOP and own.name in member.reports:
            member.reports[own.name] = "Cancelled"

    def happen(self) -> None:
        """Something on the member."""
        member, names = self.member, sorted(self.member.rayjobs)
        event = self.random.choice(["run", "succeed", "fail", "vanish", "leave", "return", "preempt", "nothing"])
        if event == "leave" and member.away_since is None:
            member.away_since = self.now
        elif event == "return":
            member.away_since = None
        elif event == "preempt":
            self.preempt()
        elif names:
            name = self.random.choice(names)
            if event == "run":
                member.reports.setdefault(name, "Running")
            elif event == "succeed" and member.reports.get(name) == "Running":
                member.reports[name] = "Succeeded"
            elif event == "fail" and member.reports.get(name) == "Running":
                member.reports[name] = "Failed"
                member.failures[name] = self.random.choice(KINDS)
            elif event == "vanish":
                member.rayjobs.discard(name)

    def check(self) -> None:
        numbers = [own.number for own in self.status.attempts]
        assert numbers == sorted(set(numbers))
        for task in {own.task for own in self.status.attempts}:
            active = [own for own in self.status.attempts if own.task == task and own.ended_at is None]
            assert len(active) <= 1
            failed = [own for own in self.status.attempts if own.task == task and own.failure and own.failure != "Preempted"]
            assert len(failed) <= self.goal.job.spec.retries.max + 1
        known = {own.name for own in self.status.attempts}
        assert self.member.rayjobs <= known
        if self.gone:
            assert not self.member.rayjobs
            assert not self.member.secrets

    def settle(self) -> None:
        """Nothing more goes wrong, and time passes: the job ends, and its objects with it."""
        for _ in range(200):
            self.member.away_since = None
            for name in self.member.rayjobs:
                if self.member.reports.setdefault(name, "Running") == "Running":
                    self.member.reports[name] = "Succeeded"
            self.look(die=False)
            self.check()
            self.now += timedelta(seconds=20)
            if self.status.phase.final and not self.member.rayjobs and not self.member.secrets:
                return
        raise AssertionError(f"the job never ends: {self.status}")


@hypothesis_settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 60), cancelled=st.booleans())
def test_no_attempt_starts_twice_and_nothing_is_left(seed: int, steps: int, cancelled: bool) -> None:
    chance = random.Random(seed)
    world = World(goal(job(tasks=[process("one"), process("two", "one"), process("three", "one")])), chance)
    for _ in range(steps):
        world.look(die=chance.random() < 0.4)
        world.check()
        world.happen()
        world.now += timedelta(seconds=chance.choice([0, 1, 5, 30, 120, 400]))
    if cancelled:
        world.goal = goal(job(tasks=[process("one"), process("two", "one"), process("three", "one")], cancelled=True))
    world.settle()
    assert world.status.phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)


@hypothesis_settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 30))
def test_a_deleted_job_leaves_nothing_behind(seed: int, steps: int) -> None:
    chance = random.Random(seed)
    world = World(goal(), chance)
    for _ in range(steps):
        world.look(die=chance.random() < 0.4)
        world.happen()
        world.now += timedelta(seconds=chance.choice([0, 5, 30]))
    world.goal = goal(deleted=True)
    for _ in range(40):
        world.member.away_since = None
        world.look(die=chance.random() < 0.4)
        world.check()
        world.now += timedelta(seconds=20)
    assert world.gone or not world.held


@hypothesis_settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 40))
def test_a_hub_that_sees_a_rayjob_before_it_dies_never_makes_it_again(seed: int, steps: int) -> None:
    chance = random.Random(seed)
    world = World(goal(), chance)
    for _ in range(steps):
        seen = {own.name for own in world.status.attempts if own.created}
        before = dict(world.member.created)
        world.look(die=chance.random() < 0.4)
        assert all(world.member.created.get(name, 0) == before.get(name, 0) for name in seen)
        world.happen()
        world.now += timedelta(seconds=chance.choice([0, 5, 30]))
