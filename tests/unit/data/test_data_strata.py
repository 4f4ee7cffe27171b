"""Splits are taken once an epoch, and neighbours in the order come from everywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.data.stream.strata import StratifiedOrder


@given(count=st.integers(1, 2000), most=st.sampled_from([1, 2, 16, 256]), seed=st.integers(0, 2**63), epoch=st.integers(0, 10**6))
def test_every_split_once(count: int, most: int, seed: int, epoch: int) -> None:
    order = StratifiedOrder(count, seed, most)
    assert sorted(order.sample(epoch, position) for position in range(count)) == list(range(count))


@given(strata=st.sampled_from([16, 64, 256]), rounds=st.integers(1, 8), seed=st.integers(0, 2**63), epoch=st.integers(0, 5))
def test_an_aligned_run_has_one_split_of_every_part_of_the_data(strata: int, rounds: int, seed: int, epoch: int) -> None:
    count = strata * rounds
    order = StratifiedOrder(count, seed, strata)
    for first in range(0, count, 16):
        parts = {order.sample(epoch, position) * 16 // count for position in range(first, first + 16)}
        assert parts == set(range(16))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    found = {tuple(StratifiedOrder(700, seed, 256).sample(epoch, p) for p in range(700)) for seed in range(4) for epoch in range(4)}
    assert len(found) == 16


def test_there_is_no_split_behind_the_last() -> None:
    with pytest.raises(IndexError):
        StratifiedOrder(5, 0, 256).sample(0, 5)
