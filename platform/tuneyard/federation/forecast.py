"""When each waiting task is likely to start: the same scheduler, run forward over what is predicted to end."""

from __future__ import annotations

import heapq
from dataclasses import replace

from tuneyard.federation.cycle import running_of
from tuneyard.federation.native import scheduler_of
from tuneyard.federation.policy import Policy, policy_of
from tuneyard.federation.pools import Key
from tuneyard.federation.reserving import expected_end
from tuneyard.federation.world import Place, World

_MOMENT_S = 1.0
"""Ends less than this apart are one moment."""


def forecast(world: World, policy: Policy | str = "tuneyard", now: float = 0.0, *, limit: int = 1000) -> dict[Key, float]:
    """Predicted starts, in seconds since the epoch, of tasks of `world` that wait, by job and task; `now` for those that could start now.

    Everything ends as predicted (what has overrun its prediction: after as long again), nobody else comes, and nobody is asked to go.
    Stops after `limit` moments at which something ends: a task that is absent starts later than those, or never. Pure; raises KeyError on
    an unknown policy.
    """
    calm = replace(policy_of(policy), preempts=False)
    scheduler = scheduler_of(world, calm, now)
    ends = [(expected_end(attempt, now), *attempt.key) for attempt in scheduler.running]
    heapq.heapify(ends)
    starts: dict[Key, float] = {}
    at = now
    for _ in range(limit + 1):
        for decision in scheduler.cycle(at):
            if isinstance(decision, Place):
                attempt = running_of(decision, at)
                starts[attempt.key] = at
                heapq.heappush(ends, (attempt.ends, *attempt.key))
        if not ends or not scheduler.waiting:
            break
        at = max(at, ends[0][0])
        while ends and ends[0][0] <= at + _MOMENT_S:
            end, job, task = heapq.heappop(ends)
            at = max(at, end)
            scheduler.release(job, task, at)
    return starts
