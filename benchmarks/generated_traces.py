"""Traces of jobs that no cluster has seen: bursts of many teams with a heavy tail, days of gangs beside floods, and crowds that wait.

Each is a function of its seed alone. A generator draws jobs in arbitrary time; `at_load` stretches that time until the work that is
submitted fills a given share of the machines.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuneyard.federation import Member, Node, SkuFacts, Team, speed_factor
from tuneyard.federation.simulation import TraceJob

A100, H100 = "a100-80gb", "h100-80gb"
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Jobs by time of submission, the machines that they meet, and the teams that have quota."""

    jobs: tuple[TraceJob, ...]
    members: tuple[Member, ...]
    teams: tuple[Team, ...] = ()

    @property
    def load(self) -> float:
        """Work that is submitted over what the machines could do until the last submission."""
        return _work_s(self.jobs) / (capacity(self.members) * max(job.submit_s for job in self.jobs))


def member(name: str, sku: str, nodes: int, gpus_per_node: int = 8) -> Member:
    """A member of one SKU."""
    return Member(
        name=name,
        skus=(SkuFacts(sku, gpus_per_node),),
        nodes=tuple(Node(f"{name}-{number}", sku, gpus_per_node, gpus_per_node) for number in range(nodes)),
    )


def capacity(members: Iterable[Member]) -> float:
    """GPUs, each counted as so many of the reference SKU as it is fast."""
    return sum(node.gpus * speed_factor(node.sku) for each in members for node in each.nodes)


def bursty(seed: int, count: int = 8000, load: float = 0.9) -> Trace:
    """Sweeps of 40 teams: each burst is one team's, of one shape; sizes of bursts, durations and teams have heavy tails.

    352 GPUs: a100-80gb in hosts of 8 and of 4, h100-80gb in hosts of 8 and of 4. A fifth of the work takes either SKU. A third of the gangs
    of 8 and more may start with a quarter of their GPUs. One burst in ten has priority high, one in five low.
    """
    rng = np.random.default_rng(seed)
    members = (member("east", A100, 20), member("west", A100, 16, 4), member("north", H100, 12), member("south", H100, 8, 4))
    shares = 1.0 / np.arange(1, 41) ** 0.8
    given_s = {(A100,): 0.0, (H100,): 0.0, (H100, A100): 0.0}
    parts = {(A100,): 0.35, (H100,): 0.45, (H100, A100): 0.2}
    jobs: list[TraceJob] = []
    at = 0.0
    while len(jobs) < count:
        at += float(rng.exponential(HOUR_S))
        team = f"team-{int(rng.choice(40, p=shares / shares.sum())):02}"
        gpus = int(rng.choice([1, 2, 4, 8, 16, 32, 64], p=[0.42, 0.12, 0.16, 0.16, 0.08, 0.04, 0.02]))
        skus = min(given_s, key=lambda each: given_s[each] / parts[each])
        like = TraceJob(
            name="",
            submit_s=at,
            duration_s=_clipped(20 * MINUTE_S * math.exp(1.6 * rng.normal()), 30.0, 7 * DAY_S),
            gpus=gpus,
            team=team,
            priority=str(rng.choice(["low", "normal", "high"], p=[0.2, 0.7, 0.1])),
            skus=skus,
            least_gpus=gpus // 4 if gpus >= 8 and rng.random() < 1 / 3 else None,
        )
        size = min(int(1 + rng.pareto(1.1)), 300, count - len(jobs))
        burst = _like(like, np.cumsum(rng.exponential(40.0, size)), np.exp(0.6 * rng.normal(size=size)), most_gpu_s=1000 * HOUR_S)
        given_s[skus] += _work_s(burst)
        jobs += burst
    return at_load(Trace(jobs=_named(jobs), members=members), load)


def daily(seed: int, days: float = 8.0, load: float = 0.9) -> Trace:
    """Three teams of one cohort over some days, busiest in the afternoon: gangs of 32 to 128 GPUs, jobs of 4 to 32, floods of single GPUs.

    320 a100-80gb: 160 in hosts of 8, 96 in hosts of 8, 64 in hosts of 4. A gang of 128 fits into the largest member alone. Half of the work
    is the gangs', a fifth that of the jobs of middle size, and the rest the floods'.
    """
    rng = np.random.default_rng(seed)
    members = (member("east", A100, 20), member("west", A100, 12), member("north", A100, 16, 4))
    teams = tuple(
        Team(name=name, quota={A100: quota}, cohort="all") for name, quota in (("research", 192), ("product", 64), ("sweeps", 64))
    )
    whole_s = capacity(members) * days * DAY_S * load
    gangs = _filled(rng, whole_s * 0.5, days, "research", [32, 64, 128], [0.5, 0.35, 0.15], 4 * HOUR_S)
    middle = _filled(rng, whole_s * 0.2, days, "product", [4, 8, 16, 32], [0.3, 0.4, 0.2, 0.1], 2 * HOUR_S)
    floods: list[TraceJob] = []
    while _work_s(floods) < whole_s * 0.3:
        like = TraceJob(name="", submit_s=_time_of_day(rng, days), duration_s=90 * MINUTE_S, gpus=1, team="sweeps")
        size = int(_clipped(120 * math.exp(0.8 * rng.normal()), 10, 800))
        floods += _like(like, np.cumsum(rng.exponential(1.0, size)), np.exp(0.8 * rng.normal(size=size)))
    return at_load(Trace(jobs=_named([*gangs, *middle, *floods]), members=members, teams=teams), load)


def crowd(seed: int, count: int = 600, load: float = 1.0, teams: int = 6) -> Trace:
    """A small cluster with more work than it can do at times: 64 a100-80gb, teams alike, jobs of 1 to 32 GPUs."""
    rng = np.random.default_rng(seed)
    jobs: list[TraceJob] = []
    at = 0.0
    while len(jobs) < count:
        at += float(rng.exponential(HOUR_S))
        size = min(int(1 + rng.pareto(1.2)), 60, count - len(jobs))
        for late in np.cumsum(rng.exponential(60.0, size)).tolist():
            jobs.append(
                TraceJob(
                    name="",
                    submit_s=at + late,
                    duration_s=_clipped(HOUR_S * math.exp(1.2 * rng.normal()), 60.0, 2 * DAY_S),
                    gpus=int(rng.choice([1, 2, 4, 8, 16, 32], p=[0.4, 0.15, 0.15, 0.18, 0.08, 0.04])),
                    team=f"team-{int(rng.integers(teams))}",
                )
            )
    return at_load(Trace(jobs=_named(jobs), members=(member("east", A100, 8),)), load)


def at_load(trace: Trace, load: float) -> Trace:
    """The same jobs, submitted faster or slower, so that their work is this share of what the machines can do."""
    stretch = trace.load / load
    return replace(trace, jobs=tuple(replace(job, submit_s=job.submit_s * stretch) for job in trace.jobs))


def _filled(
    rng: np.random.Generator, work_s: float, days: float, team: str, gpus: Sequence[int], shares: Sequence[float], median_s: float
) -> list[TraceJob]:
    """Jobs of one team until they amount to so many GPU-seconds."""
    jobs: list[TraceJob] = []
    while _work_s(jobs) < work_s:
        duration_s = _clipped(median_s * math.exp(0.8 * rng.normal()), 5 * MINUTE_S, DAY_S)
        jobs.append(
            TraceJob(name="", submit_s=_time_of_day(rng, days), duration_s=duration_s, gpus=int(rng.choice(gpus, p=shares)), team=team)
        )
    return jobs


def _time_of_day(rng: np.random.Generator, days: float) -> float:
    """A time within some days; seven times as likely at 15 h as at 3 h (Lewis and Shedler's thinning)."""
    for at in (float(rng.uniform(0, days * DAY_S)) for _ in itertools.count()):
        if rng.uniform(0, 1.75) < 1 + 0.75 * math.cos(2 * math.pi * (at / DAY_S - 15 / 24)):
            return at
    raise AssertionError


def _like(job: TraceJob, late_s: Sequence[float], factors: Sequence[float], most_gpu_s: float = math.inf) -> list[TraceJob]:
    """Copies of a job: each later, and longer or shorter by a factor."""
    most_s = most_gpu_s / job.gpus
    return [
        replace(job, submit_s=job.submit_s + float(late), duration_s=_clipped(job.duration_s * float(factor), 30.0, most_s))
        for late, factor in zip(late_s, factors, strict=True)
    ]


def _named(jobs: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
    """By time of submission, which counts from the first one's."""
    ordered = sorted(jobs, key=lambda job: job.submit_s)
    first_s = ordered[0].submit_s
    return tuple(replace(job, name=f"{number:05}", submit_s=job.submit_s - first_s) for number, job in enumerate(ordered))


def _work_s(jobs: Iterable[TraceJob]) -> float:
    return sum(job.gpus * job.duration_s for job in jobs)


def _clipped(value: float, least: float, most: float) -> float:
    return min(most, max(least, value))
