"""The figures of a simulation: waits and slowdowns of users, utilisation of machines, and fairness between teams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tuneyard.federation.simulation.life import Life
from tuneyard.federation.simulation.own_quota import own_quota_waits
from tuneyard.federation.simulation.simulator import Run

BOUND_S = 10.0
"""The shortest duration in slowdowns; shorter jobs count as this long (bounded slowdown; Feitelson and Rudolph 1998)."""


@dataclass(frozen=True, kw_only=True)
class TeamResults:
    """Figures of one team. `speed`: mean of 1 / bounded slowdown over its jobs. 1: no job waited, restarted, or ran on a slower machine."""

    team: str
    jobs: int
    gpu_hours: float
    mean_jct_s: float
    mean_wait_s: float
    p99_wait_s: float
    longest_wait_s: float
    largest_slowdown: float
    speed: float


@dataclass(frozen=True, kw_only=True)
class Results:
    """Figures of one run. Times are those of ended jobs; counts are of all jobs.

    `jct`: from submission to end. `wait`: time in the queue, before the first attempt and between attempts. `gpu_utilisation`: held share
    of all GPU time until `makespan_s`. `lost_gpu_hours`: held without kept work (work redone after failures and preemptions, restarts, the
    grace of victims). `most_preemptions_of_one`: the preemptions of the job with the most. `own_quota_*`: how long jobs wait at a stretch
    while they fit into what their team has not used of its quota. `largest_gangs_longest_wait_s`: of jobs with at least half of the GPUs of
    the largest job. `fairness`, `jain`: Jain's index (Jain, Chiu and Hawe 1984) over the teams' speeds: 1 where all teams are slowed alike,
    1/teams where one team has all.
    """

    policy: str
    jobs: int
    unfinished: int
    refused: int
    makespan_s: float
    mean_jct_s: float
    p50_jct_s: float
    p99_jct_s: float
    mean_wait_s: float
    p50_wait_s: float
    p99_wait_s: float
    longest_wait_s: float
    gpu_utilisation: float
    gpu_hours: float
    lost_gpu_hours: float
    preemptions: int
    most_preemptions_of_one: int
    own_quota_longest_wait_s: float
    own_quota_p99_wait_s: float
    largest_gangs_longest_wait_s: float
    attempts_failed: int
    node_failures: int
    member_failures: int
    fairness: float
    jain: float
    cycles: int
    seconds_per_cycle: float
    teams: tuple[TeamResults, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def results_of(run: Run) -> Results:
    """All figures of a run."""
    ended = [life for life in run.lives if life.ended_at is not None]
    began_s = min((life.job.submit_s for life in run.lives), default=0.0)
    makespan_s = max((_end(life) for life in ended), default=run.ended_s) - began_s
    unfinished = sum(life.ended_at is None and not life.refused for life in run.lives)
    if unfinished:
        makespan_s = run.ended_s - began_s
    held_s = sum(_held_s(life, run.ended_s) for life in run.lives)
    jct, wait = np.array([_jct_s(life) for life in ended]), np.array([life.waited_s for life in ended])
    own = own_quota_waits(run.lives, run.scenario.teams, run.ended_s)
    largest = max((life.job.gpus for life in run.lives), default=0)
    gangs = np.array([life.waited_s for life in ended if 2 * life.job.gpus >= largest])
    teams = _teams(ended)
    fairness = jain([team.speed for team in teams])
    return Results(
        policy=run.scenario.settings.name,
        jobs=len(run.lives),
        unfinished=unfinished,
        refused=sum(bool(life.refused) for life in run.lives),
        makespan_s=makespan_s,
        mean_jct_s=_mean(jct),
        p50_jct_s=_percentile(jct, 50),
        p99_jct_s=_percentile(jct, 99),
        mean_wait_s=_mean(wait),
        p50_wait_s=_percentile(wait, 50),
        p99_wait_s=_percentile(wait, 99),
        longest_wait_s=_percentile(wait, 100),
        gpu_utilisation=held_s / (run.total_gpus * makespan_s) if makespan_s and run.total_gpus else 0.0,
        gpu_hours=held_s / 3600,
        lost_gpu_hours=sum(life.lost_gpu_s for life in run.lives) / 3600,
        preemptions=sum(life.preemptions for life in run.lives),
        most_preemptions_of_one=max((life.preemptions for life in run.lives), default=0),
        own_quota_longest_wait_s=_percentile(own, 100),
        own_quota_p99_wait_s=_percentile(own, 99),
        largest_gangs_longest_wait_s=_percentile(gangs, 100),
        attempts_failed=sum(life.failures for life in run.lives),
        node_failures=run.node_failures,
        member_failures=run.member_failures,
        fairness=fairness,
        jain=fairness,
        cycles=run.cycles,
        seconds_per_cycle=run.cycle_s / run.cycles if run.cycles else 0.0,
        teams=teams,
    )


def jain(shares: Sequence[float]) -> float:
    """Jain's fairness index of non-negative shares: (sum x)^2 / (n sum x^2); 1 without shares."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def starved(results: Results, reference: Results) -> tuple[str, ...]:
    """Teams with a job that waited longer than any job under the reference policy."""
    return tuple(team.team for team in results.teams if team.longest_wait_s > reference.longest_wait_s)


def _teams(ended: Sequence[Life]) -> tuple[TeamResults, ...]:
    by_team: dict[str, list[Life]] = defaultdict(list)
    for life in ended:
        by_team[life.job.team].append(life)
    return tuple(_team(name, by_team[name]) for name in sorted(by_team))


def _team(name: str, lives: Sequence[Life]) -> TeamResults:
    wait = np.array([life.waited_s for life in lives])
    slowdowns = np.array([_slowdown(life) for life in lives])
    return TeamResults(
        team=name,
        jobs=len(lives),
        gpu_hours=sum(life.held_gpu_s for life in lives) / 3600,
        mean_jct_s=_mean(np.array([_jct_s(life) for life in lives])),
        mean_wait_s=_mean(wait),
        p99_wait_s=_percentile(wait, 99),
        longest_wait_s=_percentile(wait, 100),
        largest_slowdown=float(slowdowns.max()),
        speed=float((1 / slowdowns).mean()),
    )


def _end(life: Life) -> float:
    assert life.ended_at is not None
    return life.ended_at


def _jct_s(life: Life) -> float:
    return _end(life) - life.job.submit_s


def _slowdown(life: Life) -> float:
    return max(1.0, _jct_s(life) / max(life.job.duration_s, BOUND_S))


def _held_s(life: Life, now: float) -> float:
    """GPU-seconds held, including those of an attempt that still runs."""
    attempt = life.attempt
    return life.held_gpu_s + (attempt.place.workers * (now - attempt.started) if attempt is not None else 0.0)


def _mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _percentile(values: np.ndarray[Any, np.dtype[np.float64]], percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else 0.0
