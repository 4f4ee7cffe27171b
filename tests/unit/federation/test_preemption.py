"""Who is asked to go: those who lose least since their last checkpoint, never more than another legal set would, and nobody twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.worlds import ask, decide, member, running

from tuneyard.federation import PRIORITIES, Decision, Place, Preempt, Running, Scheduler, Team, Wait, pod_sizes, scheduler_of
from tuneyard.federation.pools import Pools
from tuneyard.federation.victims import Deficit, Search, cheapest_victims
from tuneyard.federation.world import World

NOW = 10_000.0


def victims(decisions: list[Decision]) -> set[str]:
    return {decision.victim.job for decision in decisions if isinstance(decision, Preempt)}


def test_the_one_that_has_just_saved_goes() -> None:
    old = running("old", {"east-0": 8}, saved=1000.0)
    young = running("young", {"east-1": 8}, saved=9000.0)
    decisions = decide([member("east", 0, 0)], ask("a", 8, priority="high"), running=(old, young), now=NOW)
    assert victims(decisions) == {"young"}
    (asked,) = (each for each in decisions if isinstance(each, Preempt))
    assert asked.reason == "a has priority high; it loses 2.62 GPU-hours, 2.22 of them since its last checkpoint"


@pytest.mark.parametrize(("preempted", "hours", "goes"), [(0, 0.5, "often"), (1, 0.5, "seldom"), (1, 1.5, "often"), (2, 2.5, "seldom")])
def test_who_was_preempted_before_is_spared_where_another_loses_little_more(preempted: int, hours: float, goes: str) -> None:
    """Earlier preemptions count as hours of lost work: one, three, seven. A job of low priority was preempted 60 times."""
    often = running("often", {"east-0": 8}, saved=NOW, preempted=preempted)
    seldom = running("seldom", {"east-1": 8}, saved=NOW - hours * 3600.0)
    decisions = decide([member("east", 0, 0)], ask("a", 8, priority="high"), running=(often, seldom), now=NOW)
    assert victims(decisions) == {goes}


@pytest.mark.parametrize(("ran_s", "preempted", "goes"), [(0.0, 0, True), (1799.0, 1, False), (1800.0, 1, True), (3599.0, 2, False)])
def test_who_was_preempted_for_higher_priority_runs_for_some_time_first(ran_s: float, preempted: int, goes: bool) -> None:
    low = running("low", {"east-0": 8}, priority="low", started=NOW - ran_s, preempted=preempted)
    for priority, expected in (("high", goes), ("urgent", True)):
        decisions = decide([member("east", 0)], ask("a", 8, priority=priority), running=(low,), now=NOW)
        assert bool(victims(decisions)) == expected


def test_two_small_ones_go_where_they_lose_less_than_a_large_one() -> None:
    attempts = (
        running("large", {"east-0": 8}, saved=NOW - 100),
        running("half", {"east-1": 4}, saved=NOW - 90),
        running("other", {"east-1": 4}, saved=NOW - 90),
    )
    assert victims(decide([member("east", 0, 0)], ask("a", priority="high"), running=attempts, now=NOW)) == {"half", "other"}


def test_a_gang_over_two_nodes_goes_once_and_frees_both() -> None:
    wide = running("wide", {"east-0": 8, "east-1": 8}, saved=NOW - 10)
    narrow = running("narrow", {"east-2": 8}, saved=NOW - 100)
    decisions = decide([member("east", 0, 0, 0)], ask("a", 16, priority="high"), running=(wide, narrow), now=NOW)
    assert victims(decisions) == {"wide"}


def test_nobody_goes_for_one_of_the_same_priority_and_none_that_may_not() -> None:
    same = running("same", {"east-0": 8}, priority="high")
    fixed = running("fixed", {"east-1": 8}, preemptible=False)
    decisions = decide([member("east", 0, 0)], ask("a", priority="high"), running=(same, fixed), now=NOW)
    assert [type(decision) for decision in decisions] == [Wait]


def test_other_policies_ask_nobody() -> None:
    attempt = running("a", {"east-0": 8})
    assert not victims(decide([member("east", 0)], ask("b", priority="urgent"), running=(attempt,), policy="best-effort-fifo"))


def test_nobody_goes_for_a_job_that_would_not_fit_then_either() -> None:
    fixed = running("fixed", {"east-1": 8}, preemptible=False)
    movable = running("movable", {"east-0": 8})
    assert not victims(decide([member("east", 0, 0)], ask("a", 16, priority="high"), running=(fixed, movable), now=NOW))


def test_those_who_go_already_are_counted_on() -> None:
    leaving = running("leaving", {"east-0": 8}, stopping=True, ends=NOW + 60)
    other = running("other", {"east-1": 8}, saved=NOW)
    assert not victims(decide([member("east", 0, 0)], ask("a", 8, priority="high"), running=(leaving, other), now=NOW))
    third = running("third", {"east-2": 8}, saved=NOW - 1)
    decisions = decide([member("east", 0, 0, 0)], ask("a", 16, priority="high"), running=(leaving, other, third), now=NOW)
    assert victims(decisions) == {"other"}


def test_one_that_goes_makes_room_for_one() -> None:
    attempts = tuple(running(f"r{n}", {f"east-{n}": 8}, saved=NOW - n) for n in range(3))
    asks = (ask("a", priority="high", created=1), ask("b", priority="high", created=2))
    decisions = decide([member("east", 0, 0, 0)], *asks, running=attempts, now=NOW)
    assert victims(decisions) == {"r0", "r1"}


def test_what_was_freed_is_kept_for_whom_it_was_freed() -> None:
    attempts = tuple(running(f"r{n}", {f"east-{n}": 8}, ends=NOW + 9000) for n in range(2))
    world = World(members=(member("east", 0, 0),), asks=(ask("a", 16, priority="high"),), running=attempts)
    scheduler = scheduler_of(world, "tuneyard", NOW)
    assert {each.victim.job for each in scheduler.cycle(NOW) if isinstance(each, Preempt)} == {"r0", "r1"}
    scheduler.release("r0", "train", NOW + 10)
    scheduler.add(ask("r0", 8, created=-10.0))
    scheduler.add(ask("small", 1, created=-10.0))
    assert scheduler.cycle(NOW + 10) == []
    scheduler.release("r1", "train", NOW + 20)
    assert [(type(each), each.ask.job) for each in scheduler.cycle(NOW + 20)] == [(Place, "a")]


def test_each_counts_on_those_who_go_for_it() -> None:
    """The one that needs a single GPU does not sit down where eight are cleared for another."""
    attempts = (
        running("all", {"east-0": 8}, ends=NOW + 9000, saved=NOW),
        running("z", {"east-1": 1}, ends=NOW + 9000, saved=NOW),
        running("fixed", {"east-1": 7}, ends=NOW + 9000, preemptible=False),
    )
    asks = (ask("one", 1, priority="high", seconds=9000.0), ask("eight", 8, unit=8, priority="high", seconds=9000.0))
    scheduler = scheduler_of(World(members=(member("east", 0, 0),), asks=asks, running=attempts), "tuneyard", NOW)
    assert {each.victim.job for each in scheduler.cycle(NOW) if isinstance(each, Preempt)} == {"all", "z"}
    assert scheduler.cycle(NOW + 10) == []
    assert {each.key[0]: dict(each.needs) for each in scheduler.reservations} == {"one": {"east-1": 1}, "eight": {"east-0": 8}}


def test_the_smallest_world_that_would_do_is_made_room_for() -> None:
    attempts = tuple(running(f"r{n}", {f"east-{n}": 8}, saved=NOW - n) for n in range(2))
    assert victims(decide([member("east", 0, 0)], ask("a", 16, 8, priority="high"), running=attempts, now=NOW)) == {"r0"}


def test_a_node_that_failed_the_task_is_not_cleared_for_it() -> None:
    attempts = (running("r0", {"east-0": 8}, saved=NOW), running("r1", {"east-1": 8}, saved=0.0))
    avoid = frozenset({("east", "east-0")})
    assert victims(decide([member("east", 0, 0)], ask("a", priority="high", avoid=avoid), running=attempts, now=NOW)) == {"r1"}


def test_no_circle_of_priorities() -> None:
    """Whoever is asked to go cannot have the one go for whom it went."""
    scheduler = Scheduler()
    scheduler.set_member(member("east", 8))
    now = 0.0
    for job, priority in (("a", "low"), ("b", "normal"), ("c", "high"), ("d", "urgent")):
        scheduler.add(ask(job, 8, priority=priority, created=now))
        for _ in range(4):
            now += 60
            for decision in scheduler.cycle(now):
                if isinstance(decision, Preempt):
                    scheduler.release(decision.victim.job, "train", now)
                    scheduler.add(ask(decision.victim.job, 8, priority=decision.victim.priority, created=0.0))
    assert {attempt.job for attempt in scheduler.running} == {"d"}
    assert scheduler.cycle(now + 60) == []


def test_a_refusal_holds_until_something_changes_that_matters() -> None:
    scheduler = Scheduler()
    scheduler.set_member(member("east", 8, 8))
    scheduler.hold(running("fixed", {"east-0": 8, "east-1": 8}, preemptible=False), 0.0)
    scheduler.add(ask("a", 8, priority="high"))
    scheduler.hold(running("elsewhere", {"west-0": 8}, cluster="west"), 0.0)
    assert scheduler.cycle(1.0) == []
    scheduler.hold(running("fixed", {"east-0": 8, "east-1": 8}), 0.0)
    (asked,) = scheduler.cycle(2.0)
    assert isinstance(asked, Preempt)


spots = st.dictionaries(st.integers(0, 2), st.integers(1, 4), min_size=1, max_size=3)


@settings(max_examples=300, deadline=None)
@given(
    held=st.lists(st.tuples(spots, st.integers(0, 500), st.sampled_from(list(PRIORITIES)), st.booleans()), min_size=1, max_size=8),
    workers=st.sampled_from([1, 2, 4, 8, 12, 16]),
    nodes=st.integers(1, 3),
)
def test_no_legal_set_of_victims_would_lose_less(held: list[tuple[dict[int, int], int, str, bool]], workers: int, nodes: int) -> None:
    left = [8] * nodes
    attempts: list[Running] = []
    for number, (wanted, age, priority, preemptible) in enumerate(held):
        takes = {spot: min(gpus, left[spot]) for spot, gpus in wanted.items() if spot < nodes and left[spot] > 0}
        if takes:
            for spot, gpus in takes.items():
                left[spot] -= gpus
            on = {f"east-{spot}": gpus for spot, gpus in takes.items()}
            attempts.append(running(f"r{number}", on, saved=NOW - age, priority=priority, preemptible=preemptible))
    decisions = decide([member("east", *left)], ask("a", workers, priority="high"), running=tuple(attempts), now=NOW)
    chosen = [each.victim for each in decisions if isinstance(each, Preempt)]
    legal = [each for each in attempts if each.preemptible and PRIORITIES[each.priority] < PRIORITIES["high"]]
    best = cheapest_by_trying_all(left, legal, workers)
    if any(isinstance(each, Place) for each in decisions) or best is None:
        assert not chosen
    else:
        assert chosen
        assert sum(_lost_s(each) for each in chosen) <= best + 1e-6


def _lost_s(attempt: Running) -> float:
    """Work since its last checkpoint, two minutes of grace and one of starting again."""
    return attempt.gpus * (NOW - attempt.saved + 180.0)


def cheapest_by_trying_all(left: list[int], legal: list[Running], workers: int) -> float | None:
    """GPU-seconds lost by the best set of all, for the largest size of pod for which any set makes room."""
    for size in pod_sizes(workers, 8, cpu=False):
        costs = []
        for some in chain.from_iterable(combinations(legal, count) for count in range(len(legal) + 1)):
            freed: Counter[str] = Counter()
            for each in some:
                freed.update(each.nodes)
            if sum((gpus + freed[f"east-{spot}"]) // size for spot, gpus in enumerate(left)) * size >= workers:
                costs.append(sum(_lost_s(each) for each in some))
        if costs:
            return min(costs)
    return None


@settings(max_examples=300, deadline=None)
@given(
    held=st.lists(st.tuples(spots, st.integers(0, 500), st.sampled_from("xyz"), st.booleans()), min_size=1, max_size=8),
    borrowed=st.fixed_dictionaries({team: st.integers(0, 20) for team in "xyz"}),
    over=st.integers(0, 8),
    pods=st.integers(1, 4),
    size=st.sampled_from([1, 2, 4, 8]),
)
def test_no_legal_set_takes_back_for_less(
    held: list[tuple[dict[int, int], int, str, bool]], borrowed: dict[str, int], over: int, pods: int, size: int
) -> None:
    """Those of lower priority may all go; of others only what their team has borrowed, but for the last one's overhang; and as many GPUs of
    teams `x` and `y` must become free as their cohort is over."""
    pools, left = Pools(), [8] * 3
    pools.set_member(member("east", *left))
    attempts, reclaimed = [], set()
    for number, (wanted, age, team, lower) in enumerate(held):
        takes = {spot: min(gpus, left[spot]) for spot, gpus in wanted.items() if left[spot] > 0}
        if takes:
            for spot, gpus in takes.items():
                left[spot] -= gpus
            attempts.append(running(f"r{number}", {f"east-{spot}": gpus for spot, gpus in takes.items()}, saved=NOW - age, team=team))
            pools.hold(attempts[-1])
            if not lower:
                reclaimed.add(attempts[-1].key)
    (pool,) = pools.all
    deficits = (Deficit(frozenset("xy"), over),) if over else ()
    search = Search(pool, pods, size, attempts, NOW, borrowed=borrowed, reclaimed=frozenset(reclaimed), deficits=deficits, overhead_s=180.0)
    costs = []
    for some in chain.from_iterable(combinations(attempts, count) for count in range(len(attempts) + 1)):
        freed: Counter[str] = Counter()
        of_team: Counter[str] = Counter()
        for each in some:
            freed.update(each.nodes)
            of_team[each.team] += each.gpus
        largest = {team: max((each.gpus for each in some if each.team == team and each.key in reclaimed), default=0) for team in "xyz"}
        legal = all(not last or of_team[team] - last < borrowed[team] for team, last in largest.items())
        room = sum((gpus + freed[f"east-{spot}"]) // size for spot, gpus in enumerate(left)) >= pods
        if legal and room and of_team["x"] + of_team["y"] >= over:
            costs.append(search.cost_of(some))
    found = cheapest_victims(search)
    assert (found.cost if found is not None else None) == (min(costs) if costs else None)


@pytest.mark.parametrize("cohort", ["", "all"])
def test_a_team_without_quota_goes_for_one_that_has_it(cohort: str) -> None:
    teams = (Team(name="owner", quota={"h100-80gb": 8}, cohort=cohort),)
    guest = running("guest", {"east-0": 8}, team="guest", saved=NOW)
    decisions = decide([member("east", 0)], ask("a", team="owner"), running=(guest,), teams=teams, now=NOW)
    assert victims(decisions) == {"guest"}
    assert not victims(decide([member("east", 0)], ask("a", team="guest"), running=(replace(guest, team="owner"),), teams=teams, now=NOW))
