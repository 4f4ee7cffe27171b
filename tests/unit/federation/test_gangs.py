"""Whole gangs on nodes: nothing half placed, nothing placed twice, and a reason for everyone who waits."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.worlds import CPU, HOUR, ask, decide, member, running

from tuneyard.federation import Ask, Infeasible, Place, Preempt, Wait, pod_sizes


def test_a_gang_needs_whole_machines_not_a_sum() -> None:
    (decision,) = decide([member("east", 4, 4, 4, 4)], ask("a", 16))
    assert isinstance(decision, Place)
    assert (decision.pods, sorted(decision.nodes.values())) == (4, [4, 4, 4, 4])
    (decision,) = decide([member("east", 7, 7, 2)], ask("a", 16))
    assert isinstance(decision, Place)
    assert decision.pods == 16


def test_an_engine_is_not_torn_over_machines() -> None:
    (decision,) = decide([member("east", 3, 3)], ask("a", 4, unit=4))
    assert isinstance(decision, Wait)
    assert decision.reason == "east: 6 GPUs free, at most 3 of 4 on one machine"


def test_a_worker_on_cpu_is_a_pod() -> None:
    (decision,) = decide([member("east", 4, sku=CPU)], ask("a", 2))
    assert isinstance(decision, Place)
    assert (decision.pods, dict(decision.nodes)) == (2, {"east-0": 2})


def test_a_task_without_workers_needs_no_node() -> None:
    (decision,) = decide([member("east", 0)], ask("a", 0))
    assert isinstance(decision, Place)
    assert (decision.pods, dict(decision.nodes)) == (0, {})


def test_the_largest_gang_that_fits_of_an_elastic_one() -> None:
    (decision,) = decide([member("east", 8, 4)], ask("a", 16, 8, 4))
    assert isinstance(decision, Place)
    assert decision.workers == 8


def test_priority_then_age() -> None:
    decisions = decide([member("east", 8)], ask("young", created=2), ask("old", created=1), ask("urgent", created=3, priority="urgent"))
    assert [(type(d).__name__, d.ask.job) for d in decisions] == [("Place", "urgent"), ("Wait", "old"), ("Wait", "young")]


def test_clusters_are_tried_as_the_job_lists_them() -> None:
    (decision,) = decide([member("east", 8), member("west", 8)], ask("a", clusters=("west", "east")))
    assert isinstance(decision, Place)
    assert decision.cluster == "west"


def test_a_node_that_failed_is_avoided_and_taken_where_nothing_else_would_do() -> None:
    avoid = frozenset({("east", "east-0")})
    (decision,) = decide([member("east", 8, 8)], ask("a", avoid=avoid))
    assert isinstance(decision, Place)
    assert list(decision.nodes) == ["east-1"]
    (decision,) = decide([member("east", 8)], ask("a", avoid=avoid))
    assert isinstance(decision, Place)


def test_what_could_never_run_is_told_from_what_must_wait() -> None:
    (never,) = decide([member("east", 0)], ask("a", 16))
    assert isinstance(never, Infeasible)
    assert (
        never.reason == "task train needs 16 x any SKU in one cluster, and the most that one has is 8 h100-80gb; ask for at most 8 workers"
    )
    (waits,) = decide([member("east", 0, 0)], ask("a", 16))
    assert isinstance(waits, Wait)
    (away,) = decide([member("east", usable=False, why_not="timed out")], ask("a", 16))
    assert isinstance(away, Wait)
    assert away.reason == "east: timed out"


worlds = st.sets(st.integers(0, 24), min_size=1, max_size=3).map(lambda some: sorted(some, reverse=True))
gangs = st.builds(lambda n, some, made: ask(f"j{n}", *some, created=made), st.integers(0, 10**6), worlds, st.integers(0, 99))
clusters = st.lists(st.lists(st.integers(0, 8), max_size=6), min_size=1, max_size=3)


@settings(max_examples=200, deadline=None)
@given(
    free=st.lists(st.lists(st.integers(0, 8), max_size=6), min_size=1, max_size=3),
    asks=st.lists(gangs, max_size=12, unique_by=lambda a: a.job),
)
def test_no_node_is_given_twice_and_no_gang_in_part(free: list[list[int]], asks: list[Ask]) -> None:
    members = [member(f"m{n}", *amounts) for n, amounts in enumerate(free)]
    decisions = decide(members, *asks)
    assert sorted(d.ask.job for d in decisions) == sorted(a.job for a in asks)
    taken: dict[tuple[str, str], int] = {}
    for decision in decisions:
        if isinstance(decision, Place):
            assert sum(decision.nodes.values()) == decision.workers
            assert decision.workers in decision.ask.worlds
            for node, gpus in decision.nodes.items():
                taken[decision.cluster, node] = taken.get((decision.cluster, node), 0) + gpus
    for owner in members:
        for node in owner.nodes:
            assert taken.get((owner.name, node.name), 0) <= node.free
    assert decide(members, *reversed(asks)) == decisions


@given(workers=st.integers(1, 512), per_node=st.integers(1, 16), unit=st.sampled_from([1, 2, 4]))
def test_pods_divide_the_gang(workers: int, per_node: int, unit: int) -> None:
    for size in pod_sizes(workers, per_node, cpu=False, unit=unit):
        assert workers % size == 0
        assert size % unit == 0
        assert size <= per_node


@settings(deadline=None)
@given(free=st.lists(st.integers(0, 8), min_size=1, max_size=6), unit=st.sampled_from([2, 4, 8]), groups=st.integers(1, 6))
def test_a_tensor_parallel_group_is_placed_whole_on_a_machine_or_its_gang_waits(free: list[int], unit: int, groups: int) -> None:
    (decision,) = decide([member("east", *free)], ask("a", unit * groups, unit=unit))
    if isinstance(decision, Place):
        assert sum(decision.nodes.values()) == unit * groups
        assert all(gpus % unit == 0 and unit * groups // decision.pods % unit == 0 for gpus in decision.nodes.values())
    else:
        # Pods are of one size: of groups that are on machines at all, each alone is the smallest.
        assert sum(gpus // unit for gpus in free) < groups


def test_a_gang_whose_groups_are_torn_says_so() -> None:
    (decision,) = decide([member("east", 3, 3, 2, 8)], ask("a", 16, unit=4))
    assert isinstance(decision, Wait)
    assert decision.reason.endswith("groups of 4 GPUs share each weight, and stay on one machine")


def test_fullest_machines_first() -> None:
    (decision,) = decide([member("east", 8, 4, 8)], ask("a", 4))
    assert isinstance(decision, Place)
    assert decision.nodes == {"east-1": 4}


class TestElasticGangsThatWait:
    """At full size it would end an hour after `other`, at its smallest after four: it waits, unless others have gone for it."""

    other = running("other", {"east-0": 6}, ends=HOUR)
    low = running("low", {"east-0": 2}, priority="low", ends=HOUR)
    gang = ask("gang", 8, 2, seconds=HOUR)

    def test_room_that_it_would_not_take_is_not_made_for_it(self) -> None:
        """Whoever went took the room again, and was asked once more: 133 times in a trace."""
        (decision,) = decide([member("east", 0)], self.gang, running=(self.other, self.low))
        assert isinstance(decision, Wait)

    def test_room_that_it_would_take_is_made(self) -> None:
        other = replace(self.other, ends=9 * HOUR)
        decision, _ = decide([member("east", 0)], self.gang, running=(other, self.low))
        assert isinstance(decision, Preempt)
        assert decision.victim.job == "low"

    def test_what_others_have_gone_for_is_taken_even_if_waiting_looks_better_by_now(self) -> None:
        (decision,) = decide([member("east", 2)], self.gang, running=(self.other,))
        assert isinstance(decision, Wait)
        (decision,) = decide([member("east", 2)], replace(self.gang, owed_since=-60.0), running=(self.other,))
        assert isinstance(decision, Place)
        assert decision.workers == 2
