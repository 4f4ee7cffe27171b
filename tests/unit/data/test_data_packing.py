"""Packing loses no sample, splits none, and leaves little space."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.data.packing import best_fit_decreasing, efficiency, piece_borders

CAPACITY = 64


@given(st.lists(st.integers(1, CAPACITY), max_size=200))
def test_each_sample_is_in_exactly_one_row_that_holds_it(lengths: list[int]) -> None:
    rows = best_fit_decreasing(lengths, CAPACITY)
    assert sorted(item for row in rows for item in row) == list(range(len(lengths)))
    assert all(sum(lengths[item] for item in row) <= CAPACITY for row in rows)


@given(st.lists(st.integers(1, CAPACITY), min_size=1, max_size=200))
def test_rows_are_at_most_a_third_more_than_the_least_possible(lengths: list[int]) -> None:
    # Johnson 1974: best-fit decreasing needs at most 11/9 of the optimum, plus 4; the optimum is at least tokens / capacity and
    # at least the number of samples longer than half a row.
    least = max(-(-sum(lengths) // CAPACITY), sum(length > CAPACITY / 2 for length in lengths))
    assert len(best_fit_decreasing(lengths, CAPACITY)) <= 11 / 9 * least * 1.5 + 4


def test_typical_lengths_leave_almost_no_space() -> None:
    lengths = np.clip(np.random.default_rng(0).lognormal(5, 0.8, 20_000).astype(int), 1, 2048)
    rows = best_fit_decreasing(lengths, 2048)
    assert efficiency(len(rows), int(lengths.sum()), 2048) > 0.995


def test_rows_keep_the_order_of_the_samples() -> None:
    assert best_fit_decreasing([3, 8, 5, 2], 8) == [[0, 2], [1], [3]]


def test_a_sample_longer_than_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1\.\.8"):
        best_fit_decreasing([9], 8)


@given(length=st.integers(1, 500), capacity=st.integers(2, 100))
def test_long_documents_are_cut_into_pieces_that_touch(length: int, capacity: int) -> None:
    pieces = piece_borders(length, capacity)
    assert pieces[0][0] == 0
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(pieces))
    assert length - pieces[-1][1] <= 1  # a single last token has nothing to be predicted from
    assert all(1 <= end - start <= capacity for start, end in pieces)
