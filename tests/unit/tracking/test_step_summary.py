"""The summary of an attempt's steps: true means, and a curve of bounded size after any number of steps."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.tracking.events import Step
from tuneyard.tracking.progress.summary import MOST_LOSSES, StepSummary, summed


def step(number: int, loss: float = 1.0, step_s: float = 2.0, **changes: float | None) -> Step:
    own = {"learning_rate": 0.1, "tokens": 100, "tokens_per_s": 50.0, "mfu": 0.4, "eta_s": 0.0, **changes}
    return Step(task="train", step=number, of=10_000, loss=loss, step_s=step_s, **own)  # type: ignore[arg-type]


def test_rates_leave_out_the_first_step_and_the_peak_is_of_all() -> None:
    summary = StepSummary().after(step(1, step_s=60.0, mfu=0.01, memory_gb=30.0)).after(step(2, step_s=2.0, memory_gb=20.0))
    summary = summary.after(step(3, step_s=6.0, mfu=0.2))

    assert summed(summary) == {"steps": 3, "step_s": 4.0, "tokens_per_s": 25.0, "mfu": pytest.approx(0.25), "memory_gb": 30.0}
    assert summed(StepSummary()) is None


@given(first=st.integers(1, 5_000), count=st.integers(1, 600))
def test_a_curve_is_short_evenly_spaced_and_ends_with_the_last_step(first: int, count: int) -> None:
    summary = StepSummary()
    for number in range(first, first + count):
        summary = summary.after(step(number, loss=1 / number))

    steps = [number for number, _ in summary.curve]
    assert steps[-1] == first + count - 1
    assert len(steps) <= MOST_LOSSES + 1
    assert steps == sorted(set(steps))
    assert len({after - before for before, after in pairwise(steps[:-1])}) <= 1
    assert len(steps) >= min(count, MOST_LOSSES // 2)


def test_what_is_not_finite_leaves_the_rest_as_it_is() -> None:
    summary = StepSummary().after(step(1)).after(step(2, loss=math.nan, mfu=math.inf, memory_gb=math.nan))

    assert summary.curve == ((1, 1.0),)
    assert summed(summary) == {"steps": 2, "step_s": 2.0, "tokens_per_s": 50.0, "mfu": None, "memory_gb": None}
