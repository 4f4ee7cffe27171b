"""Tiny traces, with every figure worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.federation.simulated import job, member, play

from tuneyard.federation import Ask, Member, Node, Place, Scheduler, SkuFacts, speed_factor
from tuneyard.federation.simulation import (
    Checkpoints,
    Failures,
    Run,
    Scenario,
    Series,
    Stay,
    TraceJob,
    jain,
    results_of,
    simulate,
    starved,
)
from tuneyard.federation.simulation.fleet import Fleet
from tuneyard.federation.simulation.life import Life

THREE = (job("a", 0, 100), job("b", 10, 50, team="search"), job("c", 20, 10))


def ends(run: Run) -> dict[str, float | None]:
    return {life.job.name: life.ended_at for life in run.lives}


def test_in_the_order_of_age() -> None:
    run = play(*THREE, policy="best-effort-fifo")
    assert ends(run) == {"a": 100, "b": 150, "c": 160}
    found = results_of(run)
    assert (found.jobs, found.unfinished, found.refused) == (3, 0, 0)
    assert found.makespan_s == 160
    assert found.mean_jct_s == pytest.approx((100 + 140 + 140) / 3)
    assert (found.p50_wait_s, found.longest_wait_s) == (90, 130)
    assert found.p99_wait_s == pytest.approx(90 + 0.98 * 40)
    assert found.gpu_utilisation == 1
    assert (found.gpu_hours, found.lost_gpu_hours) == (pytest.approx(8 * 160 / 3600), 0)


def test_shortest_first() -> None:
    run = play(*THREE, policy="shortest-first-oracle")
    assert ends(run) == {"a": 100, "c": 110, "b": 160}
    assert results_of(run).mean_jct_s == pytest.approx((100 + 90 + 150) / 3)


def test_the_head_of_the_line_blocks_only_where_the_policy_says_so() -> None:
    jobs = (job("half", 0, 100, 4), job("whole", 1, 10, 8), job("small", 2, 10, 4))
    assert ends(play(*jobs, policy="fifo-first-fit")) == {"half": 100, "whole": 110, "small": 120}
    assert ends(play(*jobs, policy="best-effort-fifo")) == {"half": 100, "whole": 110, "small": 12}


def test_teams_are_told_apart() -> None:
    maps, search = results_of(play(*THREE, policy="best-effort-fifo")).teams
    assert (maps.team, maps.jobs, maps.gpu_hours) == ("maps", 2, pytest.approx(8 * 110 / 3600))
    assert (search.team, search.jobs, search.mean_jct_s, search.longest_wait_s) == ("search", 1, 140, 90)
    assert maps.largest_slowdown == pytest.approx(140 / 10)
    assert maps.speed == pytest.approx((1 + 10 / 140) / 2)
    assert search.speed == pytest.approx(50 / 140)


def test_who_starves_has_waited_longer_than_anybody_would_by_age() -> None:
    jobs = (job("a", 0, 100), job("b", 10, 50, team="search"), *(job(f"c{n:02}", 20 + 10 * n, 10) for n in range(20)))
    by_age = results_of(play(*jobs, policy="best-effort-fifo"))
    assert by_age.longest_wait_s == 130
    assert starved(by_age, by_age) == ()
    assert starved(results_of(play(*jobs, policy="shortest-first-oracle")), by_age) == ("search",)


def test_jain() -> None:
    assert jain([2, 2, 2]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([]) == 1


def test_a_victim_keeps_what_it_did_before_the_notice() -> None:
    run = play(job("long", 0, 10_000), job("urgent", 3000, 100, priority="urgent"))
    # Notice at 3000, gone at 3120; resumes at 3220, works again from 3280 on, and has 7000 s left.
    assert ends(run) == {"urgent": 3220, "long": 10_280}
    found = results_of(run)
    assert found.preemptions == 1
    assert found.lost_gpu_hours == pytest.approx(8 * (120 + 60) / 3600)
    assert [life.waited_s for life in run.lives] == [100, 120]


def test_a_victim_without_checkpoints_starts_from_scratch() -> None:
    run = play(job("long", 0, 10_000), job("urgent", 3000, 100, priority="urgent"), checkpoints=Checkpoints(every_s=None))
    assert ends(run) == {"urgent": 3220, "long": 3220 + 60 + 10_000}
    assert results_of(run).lost_gpu_hours == pytest.approx(8 * (3120 + 60) / 3600)


def test_a_failure_costs_what_was_done_since_the_last_checkpoint() -> None:
    life = Life(index=0, job=job("a", 0, 4000), factor=2.0, checkpoints=Checkpoints(), left_s=4000, queued_at=0)
    assert life.ask().seconds == 8000
    life.start(place(life.ask()), now=100)
    assert life.saved_at(500) == 100
    assert life.saved_at(2000) == 1900
    life.fail(now=2100)
    assert (life.left_s, life.waited_s, life.lost_gpu_s) == (2200, 100, 8 * 200)
    assert life.ask().seconds == 2200 * 2 + 60
    attempt = life.start(place(life.ask()), now=2200)
    assert attempt.ends == 2200 + 60 + 2200
    life.end()
    assert (life.ended_at, life.held_gpu_s) == (4460, 8 * (2000 + 2260))
    assert life.held_gpu_s == 8 * 4000 + life.lost_gpu_s


def test_on_a_slower_gpu_it_takes_longer() -> None:
    life = Life(index=0, job=job("a", 0, 4000), factor=2.0, checkpoints=Checkpoints(), left_s=4000, queued_at=0)
    assert life.start(place(life.ask(), seconds=16_000), now=0).ends == 8000


def place(ask: Ask, seconds: float | None = None) -> Place:
    return Place(ask=ask, cluster="east", sku="a100-80gb", workers=8, pods=1, nodes={"east-0": 8}, seconds=seconds or ask.seconds)


def test_what_no_cluster_could_ever_run_is_refused() -> None:
    run = play(job("huge", 0, 10, 16), job("a", 5, 10))
    found = results_of(run)
    assert (found.jobs, found.refused, found.unfinished) == (2, 1, 0)
    assert "16" in run.lives[0].refused
    assert ends(run) == {"huge": None, "a": 15}


def test_until() -> None:
    found = results_of(play(*THREE, policy="best-effort-fifo", until_s=120))
    assert (found.unfinished, found.makespan_s, found.mean_jct_s) == (2, 120, 100)
    assert found.gpu_hours == pytest.approx(8 * 120 / 3600)


def test_with_machines_that_never_come_back_the_simulation_still_ends() -> None:
    failures = Failures(node_every_s=1000, node_away_s=1e9)
    found = results_of(play(job("a", 0, 1e6), failures=failures, until_s=1e7))
    assert (found.unfinished, found.node_failures) == (1, 1)


def test_time_does_not_go_back_where_a_machine_fails_and_is_back_in_one_moment() -> None:
    jobs = (job("a", 0, 1, 1), job("b", 0, 1, 1), job("c", 3918, 2000, 1))
    failures = Failures(node_every_s=15_257, node_away_s=0)
    for seed in range(40):
        at = play(*jobs, policy="best-effort-fifo", members=(member(nodes=2), member("west")), failures=failures, seed=seed).series.at
        assert at == sorted(at)


def test_failures_are_the_same_under_every_policy() -> None:
    jobs = [job(f"j{n}", 100 * n, 5000, 8) for n in range(20)]
    failures = Failures(node_every_s=10_000, member_every_s=30_000)
    runs = [
        play(*jobs, policy=name, members=(member(nodes=2),), failures=failures, until_s=30_000) for name in ("best-effort-fifo", "tuneyard")
    ]
    counts = [(run.node_failures, run.member_failures) for run in runs]
    assert counts[0] == counts[1]
    assert sum(counts[0]) > 0


def test_a_member_takes_its_nodes_with_it() -> None:
    fleet = Fleet([member(nodes=2)])
    fleet.take(7, "east", {"east-0": 8})
    assert fleet.lose(("east", "")) == [7]
    fleet.give_back(7, "east", {"east-0": 8})
    assert not fleet.facts("east").usable
    fleet.lose(("east", "east-1"))
    fleet.mend(("east", ""))
    assert [node.free for node in fleet.facts("east").nodes] == [8, 0]
    assert fleet.facts("east").usable
    with pytest.raises(RuntimeError, match="8 GPUs on east/east-1, which has 0"):
        fleet.take(8, "east", {"east-1": 8})


def test_samples_are_averages_over_time() -> None:
    series = Series()
    series.note(0, 2, 16, 8)
    series.note(30, 0, 0, 0)
    series.note(40, 0, 0, 0)
    found = series.samples(total_gpus=8, count=2)
    assert found.until_s.tolist() == [20, 40]
    assert np.allclose(found.queued_jobs, [2, 1])
    assert np.allclose(found.utilisation, [1, 0.5])


def test_an_elastic_job_starts_small_and_takes_longer() -> None:
    half = TraceJob(name="half", submit_s=0.0, duration_s=100.0, gpus=4, team="maps")
    elastic = TraceJob(name="elastic", submit_s=10.0, duration_s=50.0, gpus=8, team="maps", least_gpus=2)
    assert elastic.worlds == (8, 4, 2)
    run = play(half, elastic, policy="kueue-rules")
    assert ends(run) == {"half": 100, "elastic": 110}
    assert run.lives[1].stays == [Stay("a100-80gb", 4, 10.0, 110.0)]
    assert run.lives[1].held_gpu_s == 4 * 100


def test_a_job_takes_only_what_it_accepts() -> None:
    h100 = Member(name="north", skus=(SkuFacts("h100-80gb", 8),), nodes=(Node("n", "h100-80gb", 8, 8),))
    accepted = {"old": ("a100-80gb",), "new": ("h100-80gb",), "also": ("h100-80gb",)}
    jobs = [replace(job(name, 0, 100), skus=skus) for name, skus in accepted.items()]
    run = play(*jobs, members=(member(), h100), policy="best-effort-fifo")
    assert {life.job.name: (life.stays[0].sku,) for life in run.lives} == accepted
    on_h100 = 100 / speed_factor("h100-80gb")
    assert ends(run) == {"old": 100, "new": pytest.approx(2 * on_h100), "also": pytest.approx(on_h100)}


def test_what_a_team_states_changes_what_the_scheduler_hears_and_not_what_happens() -> None:
    jobs = (job("first", 0, 100), job("honest", 1, 50), replace(job("liar", 2, 100, team="liars"), stated_over_true=0.1))
    assert ends(play(*jobs)) == {"first": 100, "liar": 200, "honest": 250}
    assert ends(play(*jobs, policy="shortest-first-oracle")) == {"first": 100, "honest": 150, "liar": 250}


def test_an_observer_sees_the_scheduler_after_each_cycle() -> None:
    seen: list[tuple[float, int]] = []

    def observe(scheduler: Scheduler, now: float) -> None:
        seen.append((now, scheduler.waiting))

    simulate(THREE, (member(),), Scenario(policy="tuneyard"), np.random.default_rng(1), observe=observe)
    assert [now for now, _ in seen][:3] == [0, 10, 20]
    assert [waiting for _, waiting in seen] == [0, 1, 2, 1, 0, 0]
