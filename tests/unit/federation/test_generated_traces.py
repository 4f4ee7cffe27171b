"""The traces that our rules are measured on: the same for the same seed, of the load that they claim, and with what they should have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from benchmarks.generated_traces import A100, H100, Trace, at_load, bursty, crowd, daily
from benchmarks.said_starts import said_starts, truth
from benchmarks.team_gains import lying
from tests.unit.federation.simulated import job, member, play

from tuneyard.federation import PRIORITIES, Team
from tuneyard.federation.simulation import Scenario
from tuneyard.federation.simulation.own_quota import own_quota_waits

SMALL: dict[str, Callable[[int], Trace]] = {
    "bursty": lambda seed: bursty(seed, count=300),
    "daily": lambda seed: daily(seed, days=1.0),
    "crowd": lambda seed: crowd(seed, count=200),
}


@pytest.mark.parametrize("kind", SMALL)
def test_a_trace_follows_from_its_seed(kind: str) -> None:
    assert SMALL[kind](1) == SMALL[kind](1)
    assert SMALL[kind](1) != SMALL[kind](2)


@pytest.mark.parametrize("kind", SMALL)
def test_jobs_come_in_order_with_names_of_their_own_and_fit_somewhere(kind: str) -> None:
    trace = SMALL[kind](3)
    assert [each.submit_s for each in trace.jobs] == sorted(each.submit_s for each in trace.jobs)
    assert trace.jobs[0].submit_s == 0
    assert len({each.name for each in trace.jobs}) == len(trace.jobs)
    largest = {each.skus[0].name: sum(node.gpus for node in each.nodes) for each in sorted(trace.members, key=lambda m: len(m.nodes))}
    for each in trace.jobs:
        assert each.duration_s > 0
        assert each.priority in PRIORITIES
        assert any(largest[sku] >= each.gpus for sku in each.skus or largest)


@pytest.mark.parametrize("load", [0.5, 0.9, 2.0])
def test_work_is_the_share_of_what_the_machines_can_do_that_was_asked_for(load: float) -> None:
    for kind in SMALL:
        assert at_load(SMALL[kind](1), load).load == pytest.approx(load)


def test_bursts_are_of_many_teams_two_skus_and_elastic_gangs() -> None:
    trace = bursty(1, count=2000)
    assert len({each.team for each in trace.jobs}) > 30
    assert {each.skus for each in trace.jobs} == {(A100,), (H100,), (H100, A100)}
    assert {each.priority for each in trace.jobs} == {"low", "normal", "high"}
    elastic = [each for each in trace.jobs if each.least_gpus is not None]
    assert elastic
    assert all(len(each.worlds) == 3 for each in elastic)
    longest = sorted((each.duration_s * each.gpus for each in trace.jobs), reverse=True)
    assert sum(longest[: len(longest) // 20]) > 0.4 * sum(longest), "a twentieth of the jobs is most of the work"


def test_days_have_gangs_beside_floods_and_an_afternoon() -> None:
    trace = daily(1, days=3.0)
    by_team = Counter(each.team for each in trace.jobs)
    assert by_team["sweeps"] > 20 * by_team["research"] > 0
    assert {each.gpus for each in trace.jobs if each.team == "research"} == {32, 64, 128}
    hours = Counter(int(each.submit_s / 3600) // 6 % 4 for each in trace.jobs if each.team == "product")
    assert max(hours.values()) > 2 * min(hours.values())


class TestOwnQuota:
    teams = (Team(name="maps", quota={A100: 8}, cohort="all"), Team(name="search", quota={A100: 8}, cohort="all"))

    def test_an_ask_waits_for_its_own_until_a_victim_has_gone(self) -> None:
        jobs = (job("one", 0, 20_000), job("two", 1, 20_000), job("owner", 4000, 100, team="search"))
        run = play(*jobs, teams=self.teams, members=(member("east", 2),))
        assert list(own_quota_waits(run.lives, self.teams, run.ended_s)) == [0, 0, pytest.approx(7200 + 120)]

    def test_what_goes_beyond_the_quota_is_not_its_own(self) -> None:
        jobs = (job("one", 0, 500), job("two", 1, 500), job("three", 2, 100))
        run = play(*jobs, teams=self.teams, members=(member("east", 2),), policy="best-effort-fifo")
        assert run.lives[2].waited_s == 498
        assert list(own_quota_waits(run.lives, self.teams, run.ended_s)) == [0, 0, 0]


class TestTruth:
    def test_with_exact_guesses_and_nobody_after_it_a_start_comes_when_it_was_said(self) -> None:
        said = said_starts(crowd(2, count=120), Scenario(policy="kueue-rules", noise=0.0), 2, every=4)
        assert len(said) > 5
        assert all(each.by_forecast_s == pytest.approx(each.came_alone_s) for each in said)

    def test_quantiles_and_shares(self) -> None:
        found = truth([(100.0, 100.0), (90.0, 100.0), (300.0, 100.0), (None, 100.0)])
        assert found is not None
        assert (found.jobs, found.silent, found.median, found.within_a_fifth, found.within_twice) == (4, 1, 1.0, 0.5, 0.5)
        assert truth([]) is None


def test_who_states_less_than_its_jobs_take_changes_nothing_where_durations_count_for_nothing() -> None:
    honest, lied = (lying("kueue-rules", 1, stated_over_true=stated, count=150) for stated in (1.0, 0.1))
    assert honest == lied
