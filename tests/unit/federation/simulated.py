"""Builders of small simulations."""

from __future__ import annotations

import numpy as np

from tuneyard.federation import Member, Node, Policy, SkuFacts, Team
from tuneyard.federation.simulation import Checkpoints, Failures, Run, Scenario, TraceJob, simulate

SKU = SkuFacts("a100-80gb", 8)


def member(name: str = "east", nodes: int = 1) -> Member:
    """A member with so many nodes of 8 GPUs."""
    return Member(name=name, skus=(SKU,), nodes=tuple(Node(f"{name}-{number}", SKU.name, 8, 8) for number in range(nodes)))


def job(name: str, submit_s: float, duration_s: float, gpus: int = 8, team: str = "maps", priority: str = "normal") -> TraceJob:
    return TraceJob(name=name, submit_s=submit_s, duration_s=duration_s, gpus=gpus, team=team, priority=priority)


def play(
    *jobs: TraceJob,
    policy: Policy | str = "tuneyard",
    members: tuple[Member, ...] = (member(),),
    noise: float = 0.0,
    checkpoints: Checkpoints = Checkpoints(),
    failures: Failures = Failures(),
    teams: tuple[Team, ...] = (),
    until_s: float | None = None,
    seed: int = 1,
) -> Run:
    scenario = Scenario(policy=policy, noise=noise, checkpoints=checkpoints, failures=failures, teams=teams, until_s=until_s)
    return simulate(jobs, members, scenario, np.random.default_rng(seed))
