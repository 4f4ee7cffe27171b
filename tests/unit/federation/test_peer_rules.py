"""The rules of Kueue and Slurm, as far as a policy expresses them: what each does otherwise than ours."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.worlds import HOUR, ask, decide, member, placed, running
from tests.unit.federation.simulated import job, play
from tests.unit.federation.simulated import member as machines

from tuneyard.federation import POLICIES, Decision, Preempt, Scheduler, Team
from tuneyard.federation.pools import Pools
from tuneyard.federation.simulation import results_of
from tuneyard.federation.victims import Going, Search, youngest_victims

NOW = 10_000.0
OWNER = Team(name="owner", quota={"h100-80gb": 8}, cohort="all")
OTHER = Team(name="other", quota={"h100-80gb": 8}, cohort="all")


def victims(decisions: list[Decision]) -> set[str]:
    return {decision.victim.job for decision in decisions if isinstance(decision, Preempt)}


class TestVictims:
    attempts = (
        running("costly", {"east-0": 8}, started=9000.0, saved=0.0),
        running("cheap", {"east-1": 8}, started=1000.0, saved=9900.0),
    )

    def test_ours_lose_least_theirs_started_last(self) -> None:
        for policy, goes in (("tuneyard", "cheap"), ("kueue-rules", "costly"), ("slurm-rules", "costly")):
            found = decide([member("east", 0, 0)], ask("a", priority="high"), running=self.attempts, policy=policy, now=NOW)
            assert victims(found) == {goes}, policy

    def test_the_lowest_priority_goes_before_the_youngest(self) -> None:
        old = replace(self.attempts[1], priority="low")
        found = decide([member("east", 0, 0)], ask("a", priority="high"), running=(self.attempts[0], old), policy="slurm-rules", now=NOW)
        assert victims(found) == {"cheap"}

    def test_who_turns_out_not_to_be_needed_stays(self) -> None:
        """The youngest holds too little of any machine; the next makes room alone."""
        attempts = (
            running("half", {"east-0": 4}, started=9000.0),
            running("rest", {"east-0": 4}, started=0.0),
            running("whole", {"east-1": 8}, started=8000.0),
        )
        found = decide([member("east", 0, 0)], ask("a", priority="high"), running=attempts, policy="kueue-rules", now=NOW)
        assert victims(found) == {"whole"}

    def test_the_first_cluster_where_any_make_room(self) -> None:
        west = replace(self.attempts[1], cluster="west", nodes={"west-0": 8})
        found = decide(
            [member("east", 0), member("west", 0)],
            ask("a", priority="high"),
            running=(self.attempts[0], west),
            policy="kueue-rules",
            now=NOW,
        )
        assert victims(found) == {"costly"}

    @settings(max_examples=200, deadline=None)
    @given(
        held=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 8), st.sampled_from(["low", "normal"]), st.integers(0, 9)), max_size=8),
        pods=st.integers(1, 3),
        size=st.integers(1, 8),
    )
    def test_whoever_goes_is_needed(self, held: list[tuple[int, int, str, int]], pods: int, size: int) -> None:
        pools = Pools()
        pools.set_member(member("east", 8, 8, 8))
        (pool,) = pools.all
        attempts = []
        for number, (node, gpus, priority, started) in enumerate(held):
            if pool.free[f"east-{node}"] >= gpus:
                attempts.append(running(f"j{number}", {f"east-{node}": gpus}, priority=priority, started=float(started)))
                pools.hold(attempts[-1])
        search = Search(pool=pool, pods=pods, size=size, candidates=attempts, now=NOW)
        found = youngest_victims(search)
        assert (found is not None) == Going(search, attempts).makes_room()
        for each in found.attempts if found is not None else ():
            assert not Going(search, [other for other in found.attempts if other is not each]).makes_room()


class TestKueue:
    def test_quota_is_taken_back_at_once(self) -> None:
        borrower = running("borrower", {"east-0": 8}, team="other", started=NOW - 1)
        holder = running("holder", {"east-1": 8}, team="other", started=NOW - 1)
        world = {"running": (borrower, holder), "teams": (OWNER, OTHER), "now": NOW}
        assert len(victims(decide([member("east", 0, 0)], ask("a", team="owner"), policy="kueue-rules", **world))) == 1  # type: ignore[arg-type]
        assert not victims(decide([member("east", 0, 0)], ask("a", team="owner"), **world))  # type: ignore[arg-type]

    def test_who_would_borrow_in_part_is_last(self) -> None:
        asks = (ask("borrows", 16, team="owner"), ask("owns", team="other", created=60.0))
        assert list(placed(decide([member("east", 8, 8)], *asks, teams=(OWNER, OTHER), policy="kueue-rules"))) == ["owns"]
        assert list(
            placed(
                decide([member("east", 8, 8)], *asks, teams=(OWNER, OTHER), policy=replace(POLICIES["kueue-rules"], borrows_whole=False))
            )
        ) == ["borrows"]

    def test_durations_count_for_nothing(self) -> None:
        asks = (ask("long", seconds=99 * HOUR), ask("short", seconds=60.0, created=1.0))
        assert list(placed(decide([member("east", 8)], *asks, policy="kueue-rules"))) == ["long"]

    def test_small_ones_pass_a_large_one_for_as_long_as_they_come(self) -> None:
        floods = [job(f"s{number}", number * 50.0, 100.0, 4) for number in range(40)]
        run = play(job("large", 60.0, 100.0, 8), *floods, policy="kueue-rules")
        assert next(life.waited_s for life in run.lives if life.job.name == "large") > 1800

    def test_quota_is_not_kept_for_a_large_ask(self) -> None:
        teams = (Team(name="t", quota={"h100-80gb": 8}, borrowing={"h100-80gb": 0}),)
        holds = running("holds", {"east-0": 4}, ends=HOUR)
        asks = (ask("large", 8), ask("small", 4, created=1.0, seconds=9 * HOUR))
        for policy, first in (("kueue-rules", ["small"]), ("tuneyard", [])):
            decisions = decide([member("east", 4, 8)], *asks, running=(holds,), teams=teams, policy=policy)
            assert list(placed(decisions)) == first, policy


class TestSlurm:
    @pytest.mark.parametrize(("used_s", "put_back_s"), [(0.0, 0.0), (1e15, 70 / 15 * 7 * 24 * HOUR)])
    def test_the_fair_share_factor_puts_back_by_at_most_70_15ths_of_a_week(self, used_s: float, put_back_s: float) -> None:
        scheduler = Scheduler("slurm-rules")
        scheduler.set_member(member("east", 8))
        scheduler.set_team(Team(name="had", used_s={"h100-80gb": used_s}, used_at=0.0))
        scheduler.add(ask("had", team="had"))
        scheduler.add(ask("before", team="new", created=put_back_s - 1.0))
        scheduler.add(ask("after", team="new", created=put_back_s + 1.0))
        assert [scheduler.ahead(name, "train", 0.0) for name in ("before", "had", "after")] == [0, 1, 2]

    def test_a_shorter_one_goes_around_the_reservation(self) -> None:
        long = running("long", {"east-0": 4}, ends=HOUR)
        asks = (ask("gang", 8), ask("fits", 4, created=1.0, seconds=1800.0), ask("late", 4, created=2.0, seconds=2 * HOUR))
        assert list(placed(decide([member("east", 4)], *asks, running=(long,), policy="slurm-rules"))) == ["fits"]

    def test_teams_of_equal_priority_ask_nobody(self) -> None:
        run = play(
            job("one", 0.0, 5000.0, 8, team="a"), job("two", 10.0, 100.0, 8, team="b"), policy="slurm-rules", members=(machines("east", 1),)
        )
        assert results_of(run).preemptions == 0
