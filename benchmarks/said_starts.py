"""When a task was said to start, at its submission, and when it did: in a simulation, by the scheduler's two estimates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from benchmarks.generated_traces import Trace

from tuneyard.federation import Scheduler, forecast
from tuneyard.federation.simulation import Run, Scenario, simulate

TASK = "train"
LEAST_S = 60.0
"""Waits count as this long at least: a second more or less is no error."""
_MOMENTS = 5000
"""As far as the hub looks ahead."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """Of one job that waits: asks before it, and seconds from its submission to its start, as said and as they came. None: not said.

    `came_s` with all that was submitted later; `came_alone_s` as if nothing had been.
    """

    ahead: int
    by_forecast_s: float | None
    by_wait_s: float | None
    came_s: float
    came_alone_s: float


def said_starts(trace: Trace, scenario: Scenario, seed: int, *, every: int = 10, most_ahead: int = 200) -> list[Said]:
    """Every so manieth job of a trace that does not start at once, and has no more than so many asks before it."""
    probes = {trace.jobs[index].name: index for index in range(every - 1, len(trace.jobs), every)}
    said: dict[str, tuple[int, float | None, float | None]] = {}
    due = sorted(probes, key=lambda name: probes[name], reverse=True)

    def observe(scheduler: Scheduler, now: float) -> None:
        while due and trace.jobs[probes[due[-1]]].submit_s <= now:
            name = due.pop()
            if scheduler.ask(name, TASK) is not None:
                ahead = scheduler.ahead(name, TASK, now)
                if ahead <= most_ahead:
                    at = forecast(scheduler.world(now), scenario.policy, now, limit=_MOMENTS).get((name, TASK))
                    said[name] = (ahead, at, scheduler.explain(name, TASK, now).starts)

    run = simulate(trace.jobs, trace.members, scenario, np.random.default_rng(seed), observe=observe)
    found = []
    for name, (ahead, by_forecast, by_wait) in said.items():
        index = probes[name]
        # The noise of a job depends on its place in the trace alone: who comes later is left out, and nothing else changes.
        alone = simulate(trace.jobs[: index + 1], trace.members, scenario, np.random.default_rng(seed))
        submit_s = trace.jobs[index].submit_s
        found.append(
            Said(
                ahead=ahead,
                by_forecast_s=_waited(by_forecast, submit_s),
                by_wait_s=_waited(by_wait, submit_s),
                came_s=max(LEAST_S, _started(run, index) - submit_s),
                came_alone_s=max(LEAST_S, _started(alone, index) - submit_s),
            )
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Of some jobs: quantiles of said over actual wait, and the share that is within a fifth, and within a factor of two."""

    jobs: int
    silent: int
    p10: float
    median: float
    p90: float
    within_a_fifth: float
    within_twice: float


def truth(pairs: Iterable[tuple[float | None, float]]) -> Truth | None:
    """Of pairs of said and actual waits; None where there are none. Jobs of which nothing was said count as wrong."""
    every = list(pairs)
    ratios = np.asarray([said / came for said, came in every if said is not None])
    if not len(ratios):
        return None
    p10, median, p90 = (float(each) for each in np.percentile(ratios, [10, 50, 90]))
    return Truth(
        jobs=len(every),
        silent=len(every) - len(ratios),
        p10=p10,
        median=median,
        p90=p90,
        within_a_fifth=float(np.sum(np.abs(ratios - 1) <= 0.2)) / len(every),
        within_twice=float(np.sum((ratios >= 0.5) & (ratios <= 2))) / len(every),
    )


def _waited(at: float | None, submit_s: float) -> float | None:
    return None if at is None else max(LEAST_S, at - submit_s)


def _started(run: Run, index: int) -> float:
    return run.lives[index].stays[0].started
