"""Error rates of comparisons: how often equal models are told apart, and how often an interval holds the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator, default_rng

from tuneyard.data.row_sample import row_keys
from tuneyard.metrics import METRICS
from tuneyard.scoring.paired.resampling import Judged, Resampled
from tuneyard.scoring.paired.row_sums import Numbers, RowSums
from tuneyard.scoring.paired.units import MOST_UNITS, Drawn, Units, units_of

MEAN = METRICS["exact_match"].figures[0].value
DRAWS = 400


def sums(values: Numbers) -> RowSums:
    return RowSums(("rows", "total"), np.column_stack([np.isfinite(values), np.nan_to_num(values)]), values)


def drawn(task: Numbers, against: Numbers) -> Drawn:
    units = Units(len(task), higher_is_better=True)
    units.add(units_of(0, len(task), len(task)), sums(task), sums(against))
    return units.drawn()


def judged(task: Numbers, against: Numbers, seed: int = 0, draws: int = DRAWS) -> Judged:
    return Resampled.of(drawn(task, against), draws=draws, seed=seed).judge(MEAN)


def shares(generator: Generator, share: float, added: float, rows: int = 250) -> tuple[Numbers, Numbers]:
    """Right and wrong answers of two models that are right with `share` and `share + added`, mostly in the same rows."""
    hard = generator.random(rows)
    return tuple((hard + 0.2 * generator.standard_normal(rows) < each).astype(float) for each in (share + added, share))  # type: ignore[return-value]


def real_share(added: float, seeds: range) -> float:
    return float(np.mean([judged(*shares(default_rng(seed), 0.5, added), seed).real for seed in seeds]))


def test_equal_models_are_told_apart_in_no_more_than_one_of_twenty_comparisons() -> None:
    """At 5 %, 22 or more of 250 have a chance of 1 in 200."""
    assert real_share(0.0, range(250)) <= 21 / 250


def test_a_difference_of_five_points_on_2000_rows_is_found() -> None:
    found = [judged(*shares(default_rng(seed), 0.5, 0.05, 2000), seed) for seed in range(20)]

    assert sum(bool(each.real and each.difference > 0) for each in found) >= 19


def test_an_interval_holds_the_true_difference_nineteen_times_of_twenty() -> None:
    truth = float(np.mean(np.subtract(*shares(default_rng(1), 0.4, 0.1, 2_000_000))))
    held = 0
    for seed in range(250):
        interval = judged(*shares(default_rng(seed), 0.4, 0.1), seed).interval
        assert interval is not None
        held += interval[0] <= truth <= interval[1]

    assert 0.91 <= held / 250 <= 0.985


@settings(max_examples=50)
@given(values=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=30, max_size=80))
def test_the_interval_is_around_the_difference_and_turns_with_the_models(values: list[tuple[float, float]]) -> None:
    task, against = (np.array(each) for each in zip(*values, strict=True))

    one, other = judged(task, against), judged(against, task)

    assert one.interval is not None
    assert other.interval is not None
    assert one.interval[0] - 1e-9 <= one.difference <= one.interval[1] + 1e-9
    assert one.interval == pytest.approx((-other.interval[1], -other.interval[0]))
    assert 0 < one.p_value <= 1


@given(values=st.lists(st.tuples(st.floats(allow_nan=True, allow_infinity=False, width=16), st.floats(0, 1, width=16)), max_size=40))
def test_every_pair_with_two_values_is_won_equal_or_lost(values: list[tuple[float, float]]) -> None:
    task, against = (np.array([each[i] for each in values], float) for i in (0, 1))

    found = drawn(task, against)

    known = np.isfinite(task)
    assert found.outcomes.sum() == known.sum()
    assert found.sums.sum(axis=0).tolist() == pytest.approx([known.sum(), task[known].sum()])


def test_units_of_many_rows_hold_equally_many_and_no_neighbours() -> None:
    units = units_of(0, 1_000_000, 1_000_000)

    counts = np.bincount(units, minlength=MOST_UNITS)
    assert counts.min() > 150
    assert counts.max() < 350
    assert np.mean(units[1:] == units[:-1]) < 0.001
    assert units_of(500, 10, 1_000_000).tolist() == units[500:510].tolist()


def test_units_are_independent_of_samples_of_rows() -> None:
    numbers = np.arange(400_000)
    taken = numbers[row_keys(numbers, 0) < np.uint64(2**60)]  # a share of 1/16

    counts = np.bincount(units_of(0, 400_000, 400_000)[taken], minlength=MOST_UNITS)

    assert counts.max() < 30
