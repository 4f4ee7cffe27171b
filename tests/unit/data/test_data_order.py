"""The order of samples is a permutation, new in every epoch, computed at any place without what came before."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.data.order import Order

COUNTS = st.integers(1, 700)
SEEDS = st.integers(0, 2**40)


@given(count=COUNTS, seed=SEEDS, epoch=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_every_epoch_sees_each_sample_once(count: int, seed: int, epoch: int) -> None:
    order = Order(count, seed)
    assert sorted(order.sample(epoch, position) for position in range(count)) == list(range(count))


def test_epochs_and_seeds_differ() -> None:
    seen = {tuple(Order(200, seed).sample(epoch, i) for i in range(200)) for seed in range(4) for epoch in range(4)}
    assert len(seen) == 16


@given(count=COUNTS, seed=SEEDS, start=st.integers(0, 5_000))
@settings(max_examples=40, deadline=None)
def test_a_cursor_can_start_anywhere(count: int, seed: int, start: int) -> None:
    order = Order(count, seed)
    from_the_beginning = (order.sample(epoch, i) for epoch in itertools.count() for i in range(count))
    assert order.at(start) == next(itertools.islice(from_the_beginning, start, None))


@given(
    count=st.one_of(COUNTS, st.integers(1, 2**40)),
    seed=st.integers(-(2**63), 2**70),
    positions=st.lists(st.integers(0, 2**50), max_size=40),
    shuffle=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_many_positions_at_once_are_each_by_itself(count: int, seed: int, positions: list[int], shuffle: bool) -> None:
    order = Order(count, seed, shuffle)
    assert order.at_each(np.asarray(positions, dtype=np.int64)).tolist() == [order.at(position) for position in positions]


@pytest.mark.parametrize("count", [1, 2, 4, 5, 4096, 4097])
def test_a_whole_epoch_at_once_is_each_position_by_itself(count: int) -> None:
    order = Order(count, seed=9)
    assert order.samples(3, np.arange(count)).tolist() == [order.sample(3, position) for position in range(count)]


def test_ranks_that_take_turns_see_what_one_rank_sees() -> None:
    order, ranks = Order(103, seed=7), 4
    one = [order.at(position) for position in range(200)]
    taken = [[order.at(position) for position in range(rank, 200, ranks)] for rank in range(ranks)]
    assert [taken[position % ranks][position // ranks] for position in range(200)] == one


def test_huge_data_sets_cost_no_more() -> None:
    assert 0 <= Order(10**15, seed=3).at(10**16 + 5) < 10**15


def test_samples_spread_evenly_over_positions() -> None:
    first = [Order(10, seed).sample(0, 0) for seed in range(5_000)]
    assert all(400 < first.count(sample) < 600 for sample in range(10))


def test_without_shuffling_samples_come_as_they_are() -> None:
    assert [Order(3, shuffle=False).at(i) for i in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_places_that_do_not_exist_are_refused() -> None:
    with pytest.raises(IndexError):
        Order(3).sample(0, 3)
    with pytest.raises(IndexError):
        Order(3).samples(0, np.asarray([0, 3]))
    with pytest.raises(ValueError, match="at least one"):
        Order(0)
