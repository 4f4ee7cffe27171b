"""Decisions from a snapshot."""

from __future__ import annotations

from tuneyard.federation.native import scheduler_of
from tuneyard.federation.policy import Policy
from tuneyard.federation.world import PRIORITIES, Decision, Preempt, World


def schedule(world: World, policy: Policy | str = "tuneyard", now: float = 0.0) -> list[Decision]:
    """A decision for each ask of `world` that does not run already, and who is to go for it: first Fail, Place and Preempt in the order in
    which they were decided, then those who wait, by priority and age. `now`: seconds since the epoch.

    Pure: the same arguments give the same answer, in whatever order their parts come. Raises KeyError on an unknown policy.
    """
    scheduler = scheduler_of(world, policy, now)
    decisions: list[Decision] = list(scheduler.cycle(now))
    decided = {(each.ask.job, each.ask.task) for each in decisions if not isinstance(each, Preempt)}
    for ask in sorted(scheduler.asks, key=lambda ask: (-PRIORITIES[ask.priority], ask.created, ask.job, ask.task)):
        if (ask.job, ask.task) not in decided:
            decisions.append(scheduler.wait(ask.job, ask.task, now))
    return decisions
