"""What a simulation is given: jobs as they came, and the rules of the world that they meet."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuneyard.federation.policy import Policy, policy_of
from tuneyard.federation.world import Team

ORACLES = frozenset({"shortest-first-oracle"})
"""Policies that are told true durations: bounds to compare with, not something that could be built."""


@dataclass(frozen=True, kw_only=True)
class TraceJob:
    """A job of a trace. `duration_s`: what it takes with `gpus` on the reference SKU without interruption, its start included.

    `skus`: those that would do, in order of preference; empty: any. `least_gpus`: it may start with `gpus` halved down to this, and takes
    longer in proportion; None: it is rigid. `stated_over_true`: the duration that its team states over the true one, before the scenario's
    noise; below 1: the team understates.
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
        """Numbers of GPUs that would do, best first."""
        found = [self.gpus]
        while self.least_gpus is not None and found[-1] % 2 == 0 and found[-1] // 2 >= self.least_gpus:
            found.append(found[-1] // 2)
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """`every_s` None: there are none, and whoever is interrupted starts from scratch. `restart_s`: what each start but the first takes
    before the job goes on (images, weights, process groups): GPUs are held meanwhile, and nothing is gained."""

    every_s: float | None = 1800.0
    restart_s: float = 60.0

    def kept_s(self, worked_s: float) -> float:
        """How much of so much uninterrupted work the last periodic checkpoint holds."""
        return worked_s // self.every_s * self.every_s if self.every_s else 0.0


@dataclass(frozen=True, kw_only=True)
class Failures:
    """Mean time to a failure of each node and of each member while it works (exponential; None: never), and the time it is away then.
    A member that fails takes all that runs there with it."""

    node_every_s: float | None = None
    node_away_s: float = 3600.0
    member_every_s: float | None = None
    member_away_s: float = 4 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """`noise`: sigma of the log-normal factor by which the durations that the scheduler is told differ from the true ones (median 1; one
    draw for each job, the same under every policy). `until_s`: stop the clock there, counted from the first submission."""

    policy: Policy | str
    noise: float = 0.7
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    failures: Failures = field(default_factory=Failures)
    teams: tuple[Team, ...] = ()
    until_s: float | None = None

    @property
    def settings(self) -> Policy:
        return policy_of(self.policy)
