"""Inputs of a simulation: the jobs of a trace, checkpoints, failures of machines, teams, and the policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuneyard.federation.policy import Policy, policy_of
from tuneyard.federation.world import Team

ORACLES = frozenset({"shortest-first-oracle"})
"""Policies that get true durations: bounds for comparison, which no real scheduler can reach."""


@dataclass(frozen=True, kw_only=True)
class TraceJob:
    """A job of a trace. `duration_s`: its duration with `gpus` GPUs on the reference SKU without interruption, its start included.

    `skus`: allowed SKUs in order of preference; empty: any. `least_gpus`: the job may start with `gpus` halved repeatedly down to this, and
    takes longer in proportion; None: it is rigid. `stated_over_true`: the duration that its team states over the true duration, before the
    scenario's noise; below 1: the team understates.
    """

    name: str
    submit_s: float
    duration_s: float
    gpus: int
    team: str
    priority: str = "normal"
    skus: tuple[str, ...] = ()
    least_gpus: int | None = None
    stated_over_true: float = 1.0

    @property
    def worlds(self) -> tuple[int, ...]:
        """Possible numbers of GPUs, best first."""
        found = [self.gpus]
        while self.least_gpus is not None and found[-1] % 2 == 0 and found[-1] // 2 >= self.least_gpus:
            found.append(found[-1] // 2)
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Checkpoints of all jobs. `every_s`: their interval of work; None: no checkpoints, so that interrupted jobs start from scratch.
    `restart_s`: the time of each start but the first, until the job continues (images, weights, process groups). GPUs are held meanwhile,
    without progress."""

    every_s: float | None = 1800.0
    restart_s: float = 60.0

    def kept_s(self, worked_s: float) -> float:
        """Work in the last periodic checkpoint after `worked_s` of uninterrupted work."""
        return worked_s // self.every_s * self.every_s if self.every_s else 0.0


@dataclass(frozen=True, kw_only=True)
class Failures:
    """Mean time to a failure of each node and of each member while it works (exponential; None: never), and the time until its return. All
    attempts on a failed member fail."""

    node_every_s: float | None = None
    node_away_s: float = 3600.0
    member_every_s: float | None = None
    member_away_s: float = 4 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """All inputs beside jobs and members. `noise`: sigma of the log-normal factor between the scheduler's durations and the true ones
    (median 1; one draw for each job, the same under every policy). `until_s`: end of the simulation, counted from the first submission."""

    policy: Policy | str
    noise: float = 0.7
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    failures: Failures = field(default_factory=Failures)
    teams: tuple[Team, ...] = ()
    until_s: float | None = None

    @property
    def settings(self) -> Policy:
        return policy_of(self.policy)
