"""The validation split goes by content: the same for any order, and duplicates stay together."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.data.holdout import held_out_items

HASHES = st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=60)


@given(hashes=HASHES, fraction=st.floats(0.01, 0.9), seed=st.integers(0, 2**32), shuffle=st.randoms())
def test_order_does_not_matter(hashes: list[int], fraction: float, seed: int, shuffle) -> None:  # type: ignore[no-untyped-def]
    moved = list(hashes)
    shuffle.shuffle(moved)

    def chosen(values: list[int]) -> set[int]:
        return set(np.asarray(values, dtype=np.uint64)[held_out_items(np.asarray(values, dtype=np.uint64), fraction, seed)].tolist())

    assert chosen(hashes) == chosen(moved)


@given(hashes=HASHES, fraction=st.floats(0.01, 0.9), seed=st.integers(0, 2**32))
def test_no_duplicate_crosses_the_border_and_no_side_is_empty(hashes: list[int], fraction: float, seed: int) -> None:
    values = np.asarray(hashes + hashes, dtype=np.uint64)
    aside = held_out_items(values, fraction, seed)
    assert not set(values[aside].tolist()) & set(values[~aside].tolist())
    if len(set(hashes)) > 1:
        assert aside.any()
        assert not aside.all()


def test_the_share_is_about_what_was_asked() -> None:
    values = np.random.default_rng(0).integers(0, 2**63, 20_000).astype(np.uint64)
    assert 0.018 < held_out_items(values, 0.02, seed=1).mean() < 0.022


def test_a_growing_data_set_moves_nothing() -> None:
    values = np.random.default_rng(0).integers(0, 2**63, 2_000).astype(np.uint64)
    assert (held_out_items(values, 0.1, 5)[:1_000] == held_out_items(values[:1_000], 0.1, 5)).all()
