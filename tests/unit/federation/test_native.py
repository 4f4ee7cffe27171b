"""The native core decides as the Python scheduler does: after every step of random histories, decisions, state and reasons are equal."""

from __future__ import annotations

import gc
import math
import random
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.builders.worlds import A100, H100, HOUR, ask, member

from tuneyard.federation import (
    FITS_NEVER,
    POLICIES,
    Ask,
    Infeasible,
    Member,
    NativeScheduler,
    Node,
    Place,
    Policy,
    Running,
    Scheduler,
    SkuFacts,
    Team,
    World,
    forecast,
    new_scheduler,
)
from tuneyard.federation.native import SWITCH, _core

pytestmark = pytest.mark.skipif(_core is None, reason="the core is not built")
SKUS = (H100, A100, SkuFacts("l40s", 4, 0.9), SkuFacts("cpu", 6))
PRIORITIES = ("low", "normal", "normal", "normal", "high", "urgent")


class History:
    """Random changes, told to both schedulers."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        policy = self.chance.choice([*["tuneyard"] * 5, "fifo-first-fit", "best-effort-fifo", "shortest-first-oracle"])
        policy = POLICIES[policy]
        if self.chance.random() < 0.4:
            policy = replace(
                policy,
                settled_s=60.0,
                settled_late_s=20.0,
                spared_again_s=10.0,
                starves_least_s=300.0,
                starves_after=1.0,
                starves_unsaved_s=1e4,
                starves_settled_s=30.0,
            )
        if self.chance.random() < 0.2:
            policy = replace(policy, reservations=self.chance.choice([0, 2, 5]))
        self.policy: Policy = policy
        self.both = (Scheduler(policy), NativeScheduler(policy))
        self.now = 1e6 + self.chance.random()
        self.crowded = self.chance.random() < 0.5
        """Members stay as they are, and more is asked than they have."""
        self.busy = self.chance.choice([15, 40] if self.crowded else [2, 6, 15])
        self.teams = [f"t{number}" for number in range(self.chance.choice([1, 3, 6]))]
        self.quotas = self.chance.random() < 0.6
        for name in ("east", "west", "north")[: self.chance.choice([1, 2, 3])]:
            self.tell("set_member", self.member(name))
        for name in self.teams:
            self.tell("set_team", self.team(name))

    def tell(self, method: str, *arguments: object) -> None:
        for scheduler in self.both:
            getattr(scheduler, method)(*arguments)

    def member(self, name: str) -> Member:
        skus = tuple(self.chance.sample(SKUS, self.chance.choice([1, 1, 2])))
        nodes = []
        for number in range(12 if self.crowded else self.chance.choice([1, 4, 12])):
            sku = self.chance.choice(skus)
            gpus = sku.gpus_per_node if self.chance.random() < 0.9 else self.chance.randint(0, 9)
            nodes.append(Node(f"{name}-{number}", sku.name, gpus, gpus if self.chance.random() < 0.8 else self.chance.randint(0, gpus)))
        usable = self.crowded or self.chance.random() < 0.9
        near = ("s3://a/",) if self.chance.random() < 0.3 else ()
        return Member(name=name, skus=skus, nodes=tuple(nodes), usable=usable, why_not="" if usable else "cordoned", near=near)

    def team(self, name: str) -> Team:
        chance = self.chance
        quota = {sku.name: chance.randint(0, 24) for sku in SKUS} if self.quotas and chance.random() < 0.8 else None
        borrowing = {sku.name: chance.randint(0, 16) for sku in SKUS if chance.random() < 0.5} if quota and chance.random() < 0.4 else {}
        return Team(
            name=name,
            quota=quota,
            borrowing=borrowing,
            weight=chance.choice([1.0, 1.0, 0.3, 2.5]),
            cohort=chance.choice(["", "c", "c", "d"]),
            used_s={sku.name: chance.random() * 1e6 for sku in SKUS if chance.random() < 0.3},
            used_at=self.now - 100.0,
            closed="its budget is spent" if chance.random() < 0.05 else "",
        )

    def ask(self) -> Ask:
        chance = self.chance
        unit = chance.choice([1, 1, 1, 1, 2])
        sizes = chance.choice([(1,), (1,), (2,), (3,), (4,), (8,), (8, 4), (16,), (12, 6, 3), (32, 16, 8), (0,)])
        return ask(
            f"j{chance.randint(0, 400 if self.crowded else 60)}",
            *(size * unit for size in sizes),
            unit=unit,
            team=chance.choice(self.teams),
            priority=chance.choice(PRIORITIES),
            created=self.now - chance.choice([0.0, 10.0, 1000.0, 100_000.0]) * chance.random(),
            seconds=chance.choice([60.0, HOUR, 24 * HOUR, chance.lognormvariate(7, 2)]),
            skus=() if self.crowded else chance.choice([(), (), ("h100-80gb",), ("a100-80gb", "h100-80gb"), ("cpu",)]),
            clusters=() if self.crowded else chance.choice([(), (), ("east",), ("north", "west")]),
            avoid=chance.choice([frozenset(), frozenset(), frozenset({("east", "east-0"), ("west", "west-1")})]),
            near=chance.choice([(), ("s3://a/x",), ("s3://b/x",)]),
            preemptible=chance.random() < 0.8,
            least=chance.choice([(), (), (), (("h100-80gb", 2), ("a100-80gb", 8)), (("h100-80gb", 5), ("cpu", FITS_NEVER))]),
            owed_since=self.now - 5.0 if chance.random() < 0.03 else None,
        )

    def change(self) -> None:
        chance, now = self.chance, self.now
        running: list[Running] = sorted(self.both[0].running, key=lambda attempt: attempt.key)
        rare = [] if self.crowded else ["member", "gone", "team", "withdraw", "stray"]
        kind = chance.choice(["add"] * 6 + ["release"] * (1 if self.crowded else 4) + ["save"] * 4 + ["end", *rare])
        if kind == "add":
            self.tell("add", self.ask())
        elif kind == "withdraw":
            self.tell("withdraw", f"j{chance.randint(0, 60)}", "train")
        elif kind == "member":
            self.tell("set_member", self.member(chance.choice(["east", "west", "north"])))
        elif kind == "gone":
            self.tell("remove_member", chance.choice(["east", "west", "north", "nowhere"]))
        elif kind == "team":
            self.tell("set_team", self.team(chance.choice(self.teams)))
        elif kind == "stray":
            nodes = {f"gone-{chance.randint(0, 2)}": 3, "east-0": 1}
            self.tell("hold", self.stray(nodes), now)
        elif running:
            attempt = chance.choice(running)
            if kind == "release":
                self.tell("release", attempt.job, attempt.task, now)
            elif kind == "end":
                self.tell("hold", replace(attempt, stopping=True, ended=True), now)
            else:
                saved = now if chance.random() < 0.7 else attempt.saved
                ends = attempt.ends + chance.choice([0.0, 60.0, -500.0])
                self.tell("hold", replace(attempt, saved=saved, ends=ends, preempted=chance.choice([0, 0, 1, 40])), now)

    def stray(self, nodes: dict[str, int]) -> Running:
        """An attempt that nobody has decided, on nodes that may not be there."""
        cluster, sku = self.chance.choice(["east", "lost"]), self.chance.choice(["h100-80gb", "odd"])
        times = {"started": self.now - 500.0, "ends": self.now + 500.0, "saved": self.now - 50.0}
        return Running(
            job=f"s{self.chance.randint(0, 3)}", task="t", team="t0", priority="low", cluster=cluster, sku=sku, nodes=nodes, **times
        )

    def steps(self) -> Iterator[None]:
        for _ in range(25):
            for _ in range(self.chance.randint(1, self.busy)):
                self.change()
            self.now += self.chance.choice([0.0, 1.0, 60.0, 1800.0, 30_000.0])
            yield


def state_of(scheduler: Scheduler, now: float) -> object:
    world = scheduler.world(now)
    running = {attempt.key: attempt for attempt in world.running}
    asks = {(each.job, each.task): each for each in world.asks}
    return sorted(world.members, key=lambda each: each.name), running, asks, {each.name: each for each in world.teams}


def kept_by(scheduler: Scheduler) -> object:
    return [
        (each.key, each.pool.member, each.pool.sku.name, each.until, each.needs, each.withheld, each.lent_until)
        for each in scheduler.reservations
    ]


@pytest.mark.parametrize("seed", [*range(40), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(40, 120))])
def test_decisions_and_state_are_equal_after_every_step(seed: int) -> None:
    """`make test` has the first 40 seeds, which hold the claim: every policy, crowded clusters and empty ones."""
    history = History(seed)
    python, native = history.both
    for _ in history.steps():
        now = history.now
        expected, decisions = python.cycle(now), native.cycle(now)
        assert decisions == expected
        assert (native.unfinished, native.again_at) == (python.unfinished, python.again_at)
        assert native.waiting == python.waiting
        if history.chance.random() < 0.3:
            assert state_of(native, now) == state_of(python, now)
            assert kept_by(native) == kept_by(python)
            waiting = sorted((each.job, each.task) for each in python.asks)
            for key in waiting[:5]:
                assert native.explain(*key, now) == python.explain(*key, now)
                assert native.ahead(*key, now) == python.ahead(*key, now)
        if history.chance.random() < 0.2:
            world, _ = python.world(now), native.world(now)  # both bring usage up to now
            later = now + 10.0
            assert NativeScheduler.of(world, history.policy, later).cycle(later) == Scheduler.of(world, history.policy, later).cycle(later)


@pytest.mark.parametrize("seed", range(8))
def test_starts_are_foreseen_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(1000 + seed)
    for _ in history.steps():
        history.both[0].cycle(history.now)
    world = history.both[0].world(history.now)
    expected = forecast(world, "tuneyard", history.now)
    monkeypatch.setenv(SWITCH, "0")
    assert forecast(world, "tuneyard", history.now) == expected


def test_an_own_way_of_predicting_speed_is_for_the_python_scheduler() -> None:
    assert isinstance(new_scheduler(), NativeScheduler)
    assert not isinstance(new_scheduler(replace(POLICIES["tuneyard"], speed=lambda *_: 1.0)), NativeScheduler)


@pytest.mark.parametrize(
    "wrong",
    [
        ask("bad", 1 << 70),
        ask("bad", -1),
        ask("bad", seconds=math.nan),
        ask("bad", seconds=math.inf),
        ask("bad", created=math.nan),
        replace(ask("bad"), worlds=()),
        ask("bad", unit=0),
        ask("bad", team="\ud800"),
        ask("bad", skus=(5,)),
        ask("bad", priority="dire"),
    ],
)
def test_what_the_core_cannot_take_in_is_said_on_its_own_account(wrong: Ask) -> None:
    scheduler = NativeScheduler()
    scheduler.set_member(member("east", 8))
    scheduler.add(ask("good", 4))
    scheduler.add(wrong)
    with pytest.raises(Exception, match="bad/train"):
        scheduler.cycle(0.0)
    scheduler.withdraw("bad", "train")
    assert [each.ask.job for each in scheduler.cycle(1.0) if isinstance(each, Place | Infeasible)] == ["good"]
    world = World(members=(member("east", 8),), asks=(ask("good", 4), wrong))
    with pytest.raises(Exception, match="bad/train"):
        NativeScheduler.of(world, "tuneyard", 0.0).cycle(0.0)


@pytest.mark.parametrize("node", [Node("n", "h100-80gb", -1, 0), Node("n", "h100-80gb", 1 << 40, 0), Node("\ud800", "h100-80gb", 8, 8)])
def test_a_member_that_cannot_be_taken_in_changes_nothing(node: Node) -> None:
    scheduler = NativeScheduler()
    scheduler.set_member(member("east", 8))
    with pytest.raises((OverflowError, UnicodeEncodeError)):
        scheduler.set_member(Member(name="east", skus=(H100,), nodes=(node,)))
    scheduler.add(ask("good", 4))
    assert len(scheduler.cycle(1.0)) == 1


def test_a_scheduler_that_nobody_needs_is_gone() -> None:
    """Every forecast makes one."""
    scheduler = NativeScheduler()
    scheduler.set_member(member("east", 8))
    scheduler.add(ask("runs", 8))
    scheduler.cycle(0.0)
    scheduler.add(ask("waits", 8))
    scheduler.explain("waits", "train", 1.0)
    left = [weakref.ref(each) for each in (scheduler, scheduler.asks[0], scheduler.attempt("runs", "train"))]
    del scheduler
    gc.collect()
    assert [each() for each in left] == [None] * 3
