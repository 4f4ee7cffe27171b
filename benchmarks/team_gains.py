"""What a team gains by sending all of its jobs at once, or by saying that they are shorter than they are: two simulations, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from benchmarks.generated_traces import DAY_S, HOUR_S, Trace, crowd

from tuneyard.federation.simulation import Run, Scenario, TraceJob, simulate

LIAR = "team-0"
FLOODER = "flooder"


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Seconds from the moment from which a team's jobs are counted to their ends, on average, of one team and of all others."""

    own_s: float
    others_s: float


def lying(policy: str, seed: int, *, stated_over_true: float, count: int = 1500, load: float = 1.0, noise: float = 0.7) -> Gain:
    """Mean completion where one of six like teams states its durations so, and the others tell the truth."""
    trace = crowd(seed, count, load)
    jobs = tuple(replace(job, stated_over_true=stated_over_true) if job.team == LIAR else job for job in trace.jobs)
    run = _played(replace(trace, jobs=jobs), policy, seed, noise)
    return Gain(own_s=_mean_s(run, lambda job: job.team == LIAR), others_s=_mean_s(run, lambda job: job.team != LIAR))


def flooding(policy: str, seed: int, *, over_s: float | None, count: int = 3000, noise: float = 0.7) -> Gain:
    """Six teams trickle at half of the load that the machines bear; a seventh brings so many jobs of one GPU a day later.

    `over_s`: all at once (0), or evenly over so long; None: none of them. The flooder's jobs count from the moment of the first, whenever
    they were submitted, so that pacing them cannot look faster.
    """
    trace = crowd(seed, 1200, 0.5)
    rng = np.random.default_rng(seed)
    durations = [min(DAY_S, max(60.0, HOUR_S / 2 * math.exp(0.8 * each))) for each in rng.normal(size=count)]
    flood = [
        TraceJob(name=f"flood-{number:04}", submit_s=DAY_S + (over_s or 0.0) * number / count, duration_s=seconds, gpus=1, team=FLOODER)
        for number, seconds in enumerate(durations if over_s is not None else ())
    ]
    run = _played(replace(trace, jobs=tuple(sorted([*trace.jobs, *flood], key=lambda job: job.submit_s))), policy, seed, noise)
    own = [life.ended_at - DAY_S for life in run.lives if life.job.team == FLOODER and life.ended_at is not None]
    return Gain(own_s=float(np.mean(own)) if own else 0.0, others_s=_mean_s(run, lambda job: job.team != FLOODER and job.submit_s > DAY_S))


def _played(trace: Trace, policy: str, seed: int, noise: float) -> Run:
    return simulate(trace.jobs, trace.members, Scenario(policy=policy, noise=noise), np.random.default_rng(seed))


def _mean_s(run: Run, counts: Callable[[TraceJob], bool]) -> float:
    found: Sequence[float] = [life.ended_at - life.job.submit_s for life in run.lives if counts(life.job) and life.ended_at is not None]
    return float(np.mean(found))
