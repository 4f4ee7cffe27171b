"""The order of prepared rows: that of a stream over the same splits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.data import Order
from tuneyard.data.prepared_order import PreparedOrder
from tuneyard.data.stream.windows import Windows

ROWS = (7, 0, 3, 20, 1, 1, 0, 9, 2, 6)


@pytest.mark.parametrize(("kib", "small"), [(100, True), (2048, True), (5000, False), (100_000, False)])
def test_a_small_data_set_has_one_permutation_of_all_rows(kib: int, small: bool) -> None:
    """A file that is sorted by class is mixed from the first batch on."""
    windows = Windows.over([kib << 10] * len(ROWS), seed=5, shuffle=True)
    order = PreparedOrder(windows, ROWS)
    assert (windows.count(0) == 1) == small
    for epoch in (0, 1):
        if windows.count(epoch) == 1:
            rows = [order.at(epoch * 49 + position) for position in range(49)]
            assert rows == [Order(49, 5).sample(epoch, position) for position in range(49)]


def test_the_first_window_is_eight_mib_of_any_data_set() -> None:
    assert [Windows.over([split] * 100, 0, shuffle=True).first for split in (1, 512 << 10, 1 << 20, 3 << 20, 8 << 20, 64 << 20)] == [
        *(16, 16, 8, 2, 1, 1)
    ]


@given(
    rows=st.lists(st.integers(0, 40), min_size=1, max_size=400).filter(sum),
    first=st.sampled_from([1, 2, 4, 8, 16]),
    seed=st.integers(0, 2**63),
    shuffle=st.booleans(),
)
def test_every_epoch_has_every_row_once(rows: list[int], first: int, seed: int, shuffle: bool) -> None:
    order = PreparedOrder(Windows(len(rows), seed, shuffle, first), tuple(rows))
    for epoch in (0, 1, 7):
        found = [order.at(epoch * sum(rows) + position) for position in range(sum(rows))]
        assert sorted(found) == list(range(sum(rows)))
        assert shuffle or found == sorted(found)
