"""The interval between saves that minimises lost time.

Young (1974) and Daly (2006), to first order: with a save that costs C seconds of training and a failure every M seconds on average, the
time lost to saves and to repeated work is least when saves are sqrt(2 C M) apart.
"""

from __future__ import annotations

import math

GPU_HOURS_PER_FAILURE = 50_000
"""GPU-hours per failure of a GPU and its share of the machine: 419 unexpected interruptions in 54 days on 16,384 GPUs (Llama 3, 2024,
section 3.3.4).
"""
SHORTEST_S = 60.0
LONGEST_S = 3600.0


def mean_time_between_failures_s(workers: int, hours_per_failure: float = GPU_HOURS_PER_FAILURE) -> float:
    """Seconds between failures of a gang: it fails as soon as one of its workers does."""
    return 3600.0 * hours_per_failure / max(1, workers)


def interval_steps(*, save_cost_s: float, save_duration_s: float, step_s: float, failure_s: float) -> int:
    """Steps from one save to the next, at least 1.

    `save_cost_s`: training time of a save; `save_duration_s`: time until its commit, in the background; saves must not overlap. The
    interval is between a minute (less gains nothing) and an hour (more loses too much work for people, whatever the formula says).
    """
    best_s = math.sqrt(2.0 * max(save_cost_s, 0.0) * failure_s)
    seconds = max(min(max(best_s, SHORTEST_S), LONGEST_S), 1.2 * save_duration_s)
    return max(1, round(seconds / max(step_s, 1e-9)))
