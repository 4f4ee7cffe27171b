"""Whatever the trace, the failures and the policy: no job is lost or doubled, and every GPU-second is accounted for."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.federation.simulated import job, member, play

from tuneyard.federation import POLICIES
from tuneyard.federation.simulation import Checkpoints, Failures, TraceJob, results_of

MEMBERS = (member("east", 2), member("west", 1))
jobs = st.lists(
    st.builds(
        lambda submit_s, duration_s, gpus, team, priority: (submit_s, duration_s, gpus, team, priority),
        st.integers(0, 5000),
        st.integers(1, 2000),
        st.sampled_from([1, 2, 3, 4, 8, 16, 24]),
        st.sampled_from(["maps", "search", "ads"]),
        st.sampled_from(["low", "normal", "urgent"]),
    ),
    min_size=1,
    max_size=12,
).map(lambda rows: [job(f"j{number}", *row) for number, row in enumerate(rows)])
failures = st.builds(
    Failures,
    node_every_s=st.none() | st.floats(5000, 50_000),
    node_away_s=st.floats(0, 3000),
    member_every_s=st.none() | st.floats(8000, 50_000),
    member_away_s=st.floats(0, 3000),
)
checkpoints = st.builds(Checkpoints, every_s=st.none() | st.floats(10, 3000), restart_s=st.floats(0, 100))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60, deadline=None)
@given(jobs=jobs, failures=failures, checkpoints=checkpoints, noise=st.sampled_from([0.0, 0.7]), seed=st.integers(0, 99))
def test_nothing_is_lost_or_doubled(
    policy: str, jobs: list[TraceJob], failures: Failures, checkpoints: Checkpoints, noise: float, seed: int
) -> None:
    run = play(*jobs, policy=policy, members=MEMBERS, failures=failures, checkpoints=checkpoints, noise=noise, seed=seed)
    found = results_of(run)

    for life in run.lives:
        assert (life.ended_at is not None) != bool(life.refused)
        assert bool(life.refused) == (life.job.gpus > 16)  # no member has more than 16 GPUs
        assert life.attempt is None
        if life.ended_at is not None:
            assert life.held_gpu_s == pytest.approx(life.job.gpus * life.job.duration_s + life.lost_gpu_s, abs=1e-3)
            assert life.attempts == 1 + life.preemptions + life.failures
            assert life.ended_at - life.job.submit_s == pytest.approx(life.waited_s + life.held_gpu_s / life.job.gpus, abs=1e-3)
    assert found.unfinished == 0
    assert all(0 <= held <= run.total_gpus for held in run.series.held_gpus)
    assert run.series.held_gpus[-1] == run.series.queued_jobs[-1] == run.series.queued_gpus[-1] == 0
    assert all(one <= other for one, other in itertools.pairwise(run.series.at))
    assert sum(team.jobs for team in found.teams) + found.refused == len(jobs)
    again = play(*jobs, policy=policy, members=MEMBERS, failures=failures, checkpoints=checkpoints, noise=noise, seed=seed)
    assert results_of(again) == found


def test_a_checkpoint_that_falls_on_a_cycle_and_is_rounded_is_told_once() -> None:
    """887 + e - 887 is a little less than e: the next checkpoint seemed to be at the same moment, for ever."""
    every_s = 1826.2396088929283
    run = play(job("a", 887, 5000), job("b", 887 + every_s, 10, priority="low"), checkpoints=Checkpoints(every_s=every_s))
    assert results_of(run).unfinished == 0
