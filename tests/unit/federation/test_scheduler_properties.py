"""What holds in every world, whatever has happened: no node given twice, no gang in part, no quota broken, no order that matters, and a
scheduler that was told of changes decides as one made anew."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders.worlds import A100, H100, HOUR, ask, member

from tuneyard.federation import (
    FITS_NEVER,
    POLICIES,
    PRIORITIES,
    Ask,
    Decision,
    Infeasible,
    Member,
    Place,
    Policy,
    Preempt,
    Running,
    Scheduler,
    Team,
    World,
    running_of,
    schedule,
    scheduler_of,
)

TEAMS = ("t0", "t1", "t2")
NAMES = ("east", "west", "north")
LEAST = ((), (), (), (("a100-80gb", 16), ("h100-80gb", 4)), (("a100-80gb", 2), ("h100-80gb", FITS_NEVER)), (("h100-80gb", 3),))
"""Where models fit; mostly not known."""
SKUS = {"east": H100, "west": A100, "north": H100}
HASTY = replace(POLICIES["tuneyard"], name="hasty", settled_s=60.0, settled_late_s=20.0, spared_again_s=10.0)
"""Attempts that were spared may be preempted within a history."""


@st.composite
def members(draw: st.DrawFn, name: str) -> Member:
    free = draw(st.lists(st.integers(0, 8), min_size=1, max_size=4))
    usable = draw(st.integers(0, 9)) > 0
    return member(name, *free, sku=SKUS[name], usable=usable, why_not="" if usable else "cordoned")


@st.composite
def teams(draw: st.DrawFn, name: str) -> Team:
    limited = draw(st.booleans())
    quota = {sku.name: draw(st.integers(0, 16)) for sku in (H100, A100)} if limited else None
    borrowing = {sku.name: draw(st.integers(0, 8)) for sku in (H100, A100)} if limited and draw(st.booleans()) else {}
    return Team(
        name=name,
        quota=quota,
        borrowing=borrowing,
        cohort=draw(st.sampled_from(["", "", "c"])),
        weight=draw(st.sampled_from([1.0, 2.0])),
        closed="its budget is spent" if draw(st.integers(0, 9)) == 9 else "",
    )


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    worlds = draw(st.sets(st.sampled_from([1, 2, 3, 4, 8, 16]), min_size=1, max_size=2))
    unit = draw(st.sampled_from([1, 1, 1, 2]))
    return ask(
        f"j{draw(st.integers(0, 30))}",
        *sorted({size * unit for size in worlds}, reverse=draw(st.integers(0, 9)) > 0),
        unit=unit,
        team=draw(st.sampled_from(TEAMS)),
        priority=draw(st.sampled_from(list(PRIORITIES))),
        created=float(draw(st.integers(0, 50))),
        seconds=draw(st.sampled_from([60.0, HOUR, 24 * HOUR])),
        skus=draw(st.sampled_from([(), (), ("h100-80gb",), ("a100-80gb", "h100-80gb")])),
        clusters=draw(st.sampled_from([(), (), ("east",), ("north", "west")])),
        least=draw(st.sampled_from(LEAST)),
        avoid=draw(st.sampled_from([frozenset(), frozenset({("east", "east-0")})])),
        near=draw(st.sampled_from([(), ("s3://a/x",)])),
        preemptible=draw(st.integers(0, 4)) > 0,
    )


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, object]:
    kind = draw(
        st.sampled_from(["add", "add", "add", "withdraw", "release", "release", "save", "member", "remove", "team", "cycle", "cycle"])
    )
    if kind == "add":
        return kind, draw(asks())
    if kind == "member":
        return kind, draw(members(draw(st.sampled_from(NAMES))))
    if kind == "team":
        return kind, draw(teams(draw(st.sampled_from(TEAMS))))
    if kind == "remove":
        return kind, draw(st.sampled_from(NAMES))
    return kind, draw(st.integers(0, 50))


def apply(scheduler: Scheduler, change: tuple[str, object], now: float) -> None:
    kind, value = change
    running = sorted(scheduler.running, key=lambda attempt: attempt.key)
    if isinstance(value, Ask):
        scheduler.add(value)
    elif isinstance(value, Member):
        scheduler.set_member(value)
    elif isinstance(value, Team):
        scheduler.set_team(value)
    elif isinstance(value, str):
        scheduler.remove_member(value)
    elif isinstance(value, int) and kind == "withdraw":
        scheduler.withdraw(f"j{value}", "train")
    elif isinstance(value, int) and running:
        attempt = running[value % len(running)]
        if kind == "release":
            scheduler.release(attempt.job, attempt.task, now)
        elif kind == "save":
            scheduler.hold(replace(attempt, saved=now, ends=attempt.ends + 60, preempted=value % 3), now)


def spoken(decisions: list[Place | Preempt | Infeasible]) -> list[Decision]:
    """Without those who could never run, of whom a scheduler speaks once and one made anew again."""
    return [decision for decision in decisions if not isinstance(decision, Infeasible)]


def check(world: World, decisions: list[Place | Preempt | Infeasible]) -> None:
    free = {(owner.name, node.name): node.free for owner in world.members if owner.usable for node in owner.nodes}
    skus = {(owner.name, node.name): node.sku for owner in world.members for node in owner.nodes}
    described = {team.name: team for team in world.teams}
    holds: Counter[tuple[str, str]] = Counter()
    for attempt in world.running:
        holds[attempt.team, attempt.sku] += attempt.gpus
    gone: set[tuple[str, str]] = set()
    for decision in decisions:
        if isinstance(decision, Place):
            assert sum(decision.nodes.values()) == decision.workers
            assert decision.workers in decision.ask.worlds
            assert decision.workers >= decision.ask.fewest(decision.sku)
            size = decision.workers // decision.pods
            assert all(gpus % size == 0 for gpus in decision.nodes.values())
            assert size % decision.ask.unit == 0
            for node, gpus in decision.nodes.items():
                free[decision.cluster, node] -= gpus
                assert free[decision.cluster, node] >= 0
                assert skus[decision.cluster, node] == decision.sku
            holds[decision.ask.team, decision.sku] += decision.workers
            check_quota(described, holds, decision)
        if isinstance(decision, Preempt):
            victim = decision.victim
            assert max(decision.ask.worlds) >= decision.ask.fewest(victim.sku)
            assert victim.preemptible
            assert not victim.stopping
            assert victim.key not in gone
            gone.add(victim.key)
            assert PRIORITIES[victim.priority] <= PRIORITIES[decision.ask.priority]
            if victim.priority == decision.ask.priority:
                quota = described[victim.team].quota if victim.team in described else None
                assert holds[victim.team, victim.sku] > (quota or {}).get(victim.sku, 0)
                assert described[decision.ask.team].quota is not None


def check_quota(described: dict[str, Team], holds: Counter[tuple[str, str]], decision: Place) -> None:
    team = described.get(decision.ask.team)
    if team is None:
        return
    assert not team.closed
    if team.quota is None:
        return
    sku = decision.sku
    if sku in team.borrowing:
        assert holds[team.name, sku] <= team.quota.get(sku, 0) + team.borrowing[sku]
    if team.cohort:
        together = [other for other in described.values() if other.cohort == team.cohort]
        assert sum(holds[other.name, sku] for other in together) <= sum((other.quota or {}).get(sku, 0) for other in together)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(steps=st.lists(changes(), min_size=3, max_size=40), policy=st.sampled_from(["tuneyard", HASTY, HASTY, *POLICIES]))
def test_whatever_happens_the_scheduler_decides_as_one_made_anew(steps: list[tuple[str, object]], policy: Policy | str) -> None:
    scheduler = Scheduler(policy)
    for name in NAMES[:2]:
        scheduler.set_member(member(name, 8, 8, sku=SKUS[name]))
    now = 1000.0
    for step in [*steps, ("cycle", 0), ("cycle", 1)]:
        now += 10
        if step[0] != "cycle":
            apply(scheduler, step, now)
            continue
        world = scheduler.world(now)
        anew = scheduler_of(world, policy, now).cycle(now)
        decisions = scheduler.cycle(now)
        assert spoken(decisions) == spoken(anew)
        check(world, decisions)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    some=st.lists(asks(), max_size=10, unique_by=lambda each: each.job),
    owners=st.tuples(*(members(name) for name in NAMES)),
    described=st.tuples(*(teams(name) for name in TEAMS)),
    first=st.lists(asks(), max_size=6, unique_by=lambda each: each.job),
    seed=st.integers(0, 99),
)
def test_no_order_matters(some: list[Ask], owners: tuple[Member, ...], described: tuple[Team, ...], first: list[Ask], seed: int) -> None:
    before = Scheduler()
    for owner in owners:
        before.set_member(owner)
    for each in first:
        before.add(replace(each, job=f"r{each.job}"))
    attempts = [running_of(place, 0.0) for place in before.cycle(0.0) if isinstance(place, Place)]
    world = replace(before.world(0.0), teams=described, asks=tuple(some), running=tuple(attempts))
    answer = schedule(world, "tuneyard", 500.0)
    shuffle = random.Random(seed)

    def mixed(values: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(shuffle.sample(values, len(values)))

    other = World(
        members=mixed(tuple(replace(owner, nodes=mixed(owner.nodes)) for owner in world.members)),  # type: ignore[arg-type]
        asks=mixed(world.asks),  # type: ignore[arg-type]
        running=mixed(world.running),  # type: ignore[arg-type]
        teams=mixed(world.teams),  # type: ignore[arg-type]
    )
    assert schedule(other, "tuneyard", 500.0) == answer
    assert {(each.ask.job) for each in answer if not isinstance(each, Preempt)} == {each.job for each in some}


@pytest.mark.parametrize("policy", ["tuneyard", "best-effort-fifo"])
def test_a_hundred_thousand_asks_are_only_many(policy: str) -> None:
    scheduler = Scheduler(policy)
    scheduler.set_member(member("east", 8, 8))
    for number in range(100_000):
        scheduler.add(ask(f"j{number}", 1 + number % 8, created=float(number), team=f"t{number % 30}"))
    placed = scheduler.cycle(0.0)
    assert sum(place.workers for place in placed if isinstance(place, Place)) == 16
    assert scheduler.waiting == 100_000 - len(placed)
    assert "enough at about" in scheduler.explain("j99999", "train", 0.0).reason


@pytest.mark.parametrize("team", ["t", "small"])
def test_a_large_job_starts_however_many_small_ones_come(team: str) -> None:
    """More small ones come than end, of the same team or of another; the large one's turn comes all the same."""
    scheduler = Scheduler()
    scheduler.set_member(member("east", 8, 8))
    for name in {"t", team}:
        scheduler.set_team(Team(name=name, quota={"h100-80gb": 16}, borrowing={"h100-80gb": 0}))
    started: dict[str, Running] = {}
    for minute in range(0, 6000, 10):
        now = minute * 60.0
        for attempt in [attempt for attempt in scheduler.running if attempt.ends <= now]:
            scheduler.release(attempt.job, attempt.task, now)
        if minute == 100:
            scheduler.add(ask("large", 16, created=now, seconds=600.0, team="t"))
        for number in range(8):
            scheduler.add(ask(f"s{minute}-{number}", 2, created=now, seconds=1800.0, team=team))
        for place in scheduler.cycle(now):
            if isinstance(place, Place):
                started[place.ask.job] = running_of(place, now)
        if "large" in started:
            break
    assert "large" in started
    assert started["large"].started <= 6000 * 60
