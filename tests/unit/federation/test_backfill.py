"""GPUs kept for the first who waits: who is short enough passes, nobody else; elastic gangs start small or wait for more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.worlds import H100, HOUR, ask, decide, member, placed, running

from tuneyard.federation import POLICIES, Ask, Infeasible, Place, Scheduler, SkuFacts, Wait, forecast
from tuneyard.federation.world import World

BY_AGE = replace(POLICIES["tuneyard"], order="age", preempts=False)


def on_h100(hours: float) -> float:
    """A duration that on this SKU comes to so many hours."""
    return hours * HOUR / BY_AGE.speed(ask(seconds=1.0), H100.name, 8)


HOLDS = running("r", {"east-0": 8}, ends=HOUR)
LARGE = ask("large", 16)


def test_a_long_one_does_not_pass_and_a_short_one_does() -> None:
    long = ask("long", 8, created=1, seconds=on_h100(1.1))
    short = ask("short", 8, created=2, seconds=on_h100(0.9))
    decisions = decide([member("east", 0, 8)], LARGE, long, short, running=(HOLDS,), policy=BY_AGE)
    assert set(placed(decisions)) == {"short"}


def test_the_short_one_is_found_behind_long_ones_of_its_kind() -> None:
    long = [ask(f"long{n}", 8, created=1 + n, seconds=on_h100(9)) for n in range(40)]
    short = ask("short", 8, created=99, seconds=on_h100(0.9))
    assert set(placed(decide([member("east", 0, 8)], LARGE, *long, short, running=(HOLDS,), policy=BY_AGE))) == {"short"}


def test_a_long_one_may_use_what_the_first_will_not_need() -> None:
    long = ask("long", 8, created=1, seconds=on_h100(99))
    decisions = decide([member("east", 0, 8, 8)], LARGE, long, running=(HOLDS,), policy=BY_AGE)
    assert set(placed(decisions)) == {"large"}
    decisions = decide([member("east", 0, 8), member("west", 8)], LARGE, long, running=(HOLDS,), policy=BY_AGE)
    assert placed(decisions) == {"long": "west"}


def test_nobody_passes_who_is_due() -> None:
    """Predictions that are too short would put the first off for ever: past its rank, what is kept for it is not lent."""
    month = 30 * 24 * HOUR
    holds = replace(HOLDS, started=month, ends=month + HOUR)
    short = ask("short", 8, created=month, seconds=on_h100(0.5))
    fresh, late = ask("large", 16, created=month - HOUR), ask("large", 16, created=0.0)
    assert set(placed(decide([member("east", 0, 8)], fresh, short, running=(holds,), now=month))) == {"short"}
    assert placed(decide([member("east", 0, 8)], late, short, running=(holds,), now=month)) == {}


def test_why_says_for_whom_it_is_kept() -> None:
    long = ask("long", 8, created=1, seconds=on_h100(99))
    first, second = decide([member("east", 0, 8)], LARGE, long, running=(HOLDS,), policy=BY_AGE)
    assert isinstance(first, Wait)
    assert isinstance(second, Wait)
    assert first.starts == HOUR
    assert first.reason == "east: 1 of 2 pods of 8 GPUs find room (8 GPUs free), enough at about 1970-01-01 01:00 UTC when r ends"
    assert second.reason == "east: 8 GPUs free, reserved for large, which starts at about 1970-01-01 01:00 UTC"


def test_one_that_has_overrun_is_given_as_long_again() -> None:
    overdue = replace(HOLDS, started=-HOUR, ends=0.0)
    (waits,) = decide([member("east", 0)], ask(), running=(overdue,), now=600.0)
    assert isinstance(waits, Wait)
    assert waits.starts == 1200.0


class TestElastic:
    def test_small_now_where_its_full_size_is_far_off(self) -> None:
        (place,) = decide([member("east", 0, 8)], ask("a", 16, 8, seconds=HOUR), running=(replace(HOLDS, ends=50 * HOUR),))
        assert isinstance(place, Place)
        assert place.workers == 8

    def test_large_later_where_that_ends_sooner(self) -> None:
        (waits,) = decide([member("east", 0, 8)], ask("a", 16, 8, seconds=10 * HOUR), running=(replace(HOLDS, ends=600.0),))
        assert isinstance(waits, Wait)
        assert waits.starts == 600.0

    def test_and_nobody_is_asked_to_go_for_one_that_could_start_small(self) -> None:
        low = replace(HOLDS, ends=600.0, priority="low")
        (waits,) = decide([member("east", 0, 8)], ask("a", 16, 8, seconds=10 * HOUR), running=(low,))
        assert isinstance(waits, Wait)


class TestStrangeWorlds:
    def test_more_held_than_there_is(self) -> None:
        lies = (running("r", {"east-0": 8}), running("s", {"east-0": 8}, ends=2 * HOUR))
        (waits,) = decide([member("east", -8)], ask(), running=lies)
        assert isinstance(waits, Wait)
        assert waits.starts == 2 * HOUR

    def test_a_machine_that_shrinks_under_what_runs(self) -> None:
        scheduler = Scheduler()
        scheduler.set_member(member("east", 8, 8))
        scheduler.hold(running("r", {"east-0": 8}), 0.0)
        scheduler.set_member(member("east", 4, 8, sku=SkuFacts(H100.name, 8)))
        scheduler.add(ask("a", 8))
        (place,) = scheduler.cycle(1.0)
        assert isinstance(place, Place)
        assert place.nodes == {"east-1": 8}
        scheduler.release("r", "train", 2.0)
        scheduler.add(ask("b", 8))
        assert scheduler.cycle(2.0) == []

    def test_a_node_that_is_gone_under_what_runs(self) -> None:
        scheduler = Scheduler()
        scheduler.set_member(member("east", 8, 8))
        scheduler.hold(running("r", {"east-1": 8}), 0.0)
        scheduler.set_member(member("east", 8))
        scheduler.release("r", "train", 2.0)
        scheduler.add(ask("a", 8))
        assert [type(each) for each in scheduler.cycle(3.0)] == [Place]

    def test_a_cluster_that_is_removed_under_what_runs(self) -> None:
        scheduler = Scheduler()
        scheduler.set_member(member("east", 8, 8))
        scheduler.set_member(member("west", 4))
        scheduler.hold(running("r", {"east-0": 8}), 0.0)
        scheduler.add(ask("a", 4, unit=4))
        scheduler.remove_member("east")
        (place,) = scheduler.cycle(1.0)
        assert isinstance(place, Place)
        assert place.cluster == "west"
        scheduler.add(ask("b", 16, unit=8))
        (never,) = scheduler.cycle(2.0)
        assert isinstance(never, Infeasible)
        assert never.reason.startswith("task train needs 16 x any SKU in one cluster")
        scheduler.set_member(member("east", 8, 8))
        assert scheduler.cycle(3.0) == []
        scheduler.release("r", "train", 4.0)
        assert [type(each) for each in scheduler.cycle(4.0)] == [Place]

    @pytest.mark.parametrize("now", [-1e9, 0.0, 4e9, 1e13])
    def test_a_clock_that_jumps(self, now: float) -> None:
        scheduler = Scheduler()
        scheduler.set_member(member("east", 8))
        scheduler.add(ask("a", created=1e9))
        assert len(scheduler.cycle(1e9)) == 1
        scheduler.add(ask("b", created=1e9, priority="high"))
        scheduler.cycle(now)
        assert "east: 0 of 8 GPUs free" in scheduler.explain("b", "train", now).reason
        scheduler.release("a", "train", now)
        assert [type(each) for each in scheduler.cycle(1e9 + 1)] == [Place]


small = st.builds(
    lambda n, size, hours, at: ask(f"j{n}", size, seconds=on_h100(hours), created=float(at)),
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([0.1, 0.5, 1, 3]),
    st.integers(1, 9),
)


@settings(max_examples=80, deadline=None)
@given(
    before=st.lists(small, max_size=6, unique_by=lambda each: each.job), behind=st.lists(small, max_size=8, unique_by=lambda each: each.job)
)
def test_with_exact_predictions_nobody_delays_the_first(before: list[Ask], behind: list[Ask]) -> None:
    """What it is told at first is the latest at which it starts."""
    scheduler = Scheduler(BY_AGE)
    scheduler.set_member(member("east", 8, 8))
    for each in before:
        scheduler.add(replace(each, job=f"before-{each.job}"))
    scheduler.cycle(0.0)
    for each in scheduler.asks:
        scheduler.withdraw(each.job, each.task)
    scheduler.add(ask("large", 16, unit=8))
    for each in behind:
        scheduler.add(each)
    decisions = scheduler.cycle(0.0)
    if "large" in {each.ask.job for each in decisions if isinstance(each, Place)}:
        return
    told = scheduler.explain("large", "train", 0.0).starts
    assert told is not None
    assert started_at("large", scheduler) <= told + 1e-6


def started_at(job: str, scheduler: Scheduler) -> float:
    ends = {attempt.key: attempt.ends for attempt in scheduler.running}
    while ends:
        now = min(ends.values())
        for key in [key for key, end in ends.items() if end == now]:
            del ends[key]
            scheduler.release(*key, now)
        for each in scheduler.cycle(now):
            if isinstance(each, Place):
                if each.ask.job == job:
                    return now
                ends[each.ask.job, each.ask.task] = now + each.seconds
    raise AssertionError(f"{job} never started")


class TestForecast:
    def test_starts_by_what_is_predicted_to_end(self) -> None:
        asks = (ask("a", seconds=on_h100(2)), ask("b", created=1, seconds=on_h100(1)), ask("never", 64))
        world = World(members=(member("east", 0),), asks=asks, running=(HOLDS,))
        starts = forecast(world, BY_AGE, 600.0)
        assert starts == {("a", "train"): HOUR, ("b", "train"): pytest.approx(3 * HOUR)}
        assert forecast(world, BY_AGE, 600.0, limit=1) == {("a", "train"): HOUR}

    def test_who_could_start_starts_now(self) -> None:
        world = World(members=(member("east", 8),), asks=(ask("a"),))
        assert forecast(world, "tuneyard", 60.0) == {("a", "train"): 60.0}

    def test_who_may_ask_others_to_go_starts_when_they_have_gone(self) -> None:
        world = World(members=(member("east", 0),), asks=(ask("a", priority="urgent"),), running=(HOLDS,))
        assert forecast(world, "tuneyard", 0.0) == {("a", "train"): 120.0}

    def test_a_victim_waits_again_with_the_rest_of_its_prediction(self) -> None:
        """`a` holds the machine for an hour; the two hours that `HOLDS` had left come after it, with its restart, and `b` after that."""
        asks = (ask("a", priority="urgent", seconds=on_h100(1)), ask("b", created=HOUR, seconds=on_h100(50)))
        holds = replace(HOLDS, ends=2 * HOUR)
        starts = forecast(World(members=(member("east", 0),), asks=asks, running=(holds,)), "tuneyard", 0.0)
        assert starts == {("a", "train"): 120.0, ("b", "train"): pytest.approx(120 + 3 * HOUR, abs=60)}


def test_an_elastic_gang_is_kept_the_largest_size_that_any_cluster_has() -> None:
    busy = running("r", {"east-1": 8}, ends=HOUR)
    gang, long = ask("gang", 32, 16), ask("long", 8, created=10.0, seconds=50 * HOUR)
    assert placed(decide([member("east", 8, 0)], gang, long, running=(busy,))) == {}
    assert placed(decide([member("east", 8, 0)], long, running=(busy,))) == {"long": "east"}
