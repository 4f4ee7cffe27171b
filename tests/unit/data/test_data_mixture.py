"""Mixtures: shares, exhaustion, passes, and cursors that cost nothing."""

from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from tuneyard.data.mixture import BLOCK, Mixture, Part


@pytest.mark.parametrize("exhausted", ["repeat", "leave", "stop"])
@pytest.mark.parametrize("repeats", [(None, None, None), (2, 1, 3), (2, None, 1)])
@pytest.mark.parametrize("weights", [(3.0, 1.0, 1.0), (None, None, None), (1e-6, 1.0, 1e6)])
def test_every_row_of_a_part_comes_in_order_once_per_pass(exhausted, repeats, weights) -> None:
    given = zip("abc", (100, 1000, 50), weights, repeats, strict=True)
    mixture = Mixture([Part(*each) for each in given], seed=7, exhausted=exhausted)
    last = 2 * mixture.epoch_rows + 17
    rows = defaultdict(list)
    for position in range(last):
        part, row = mixture.at(position)
        rows[part].append(row)
    assert all(found == list(range(len(found))) for found in rows.values())
    assert mixture.counts(0, last) == [len(rows[part]) for part in range(3)]
    assert mixture.counts(last // 3, last) == [
        after - before for before, after in zip(mixture.counts(0, last // 3), mixture.counts(0, last), strict=True)
    ]


@pytest.mark.parametrize("exhausted", ["repeat", "leave", "stop"])
@pytest.mark.parametrize("repeats", [(None, None), (2, 3)])
def test_many_positions_at_once_are_each_by_itself(exhausted, repeats) -> None:
    given = zip("ab", (9_000, 700), (5.0, 1.0), repeats, strict=True)
    mixture = Mixture([Part(*each) for each in given], seed=7, exhausted=exhausted)
    positions = np.random.default_rng(0).integers(0, 5 * mixture.epoch_rows, 500)
    parts, rows = mixture.at_each(positions)
    assert list(zip(parts.tolist(), rows.tolist(), strict=True)) == [mixture.at(int(position)) for position in positions]


@pytest.mark.parametrize("start", [0, 5, BLOCK - 100, 10 * BLOCK + 3])
@pytest.mark.parametrize("window", [100, 1000, 8000])
def test_every_window_has_nearly_the_shares_of_the_whole(start: int, window: int) -> None:
    mixture = Mixture([Part("a", 1000, 5), Part("b", 10, 3), Part("c", 70_000, 2)], seed=3)
    for share, count in zip((0.5, 0.3, 0.2), mixture.counts(start, start + window), strict=True):
        assert abs(count - share * window) <= 3


def test_a_part_leaves_when_its_passes_are_over() -> None:
    mixture = Mixture([Part("a", 100, 1), Part("b", 300, 1), Part("c", 1000, 2)], exhausted="leave")
    assert mixture.epoch_rows == 1400
    assert mixture.counts(0, 1400) == [100, 300, 1000]
    assert mixture.counts(1300, 1400)[0] == 0
    assert mixture.counts(1400, 2800) == [100, 300, 1000]


def test_stop_ends_an_epoch_with_the_first_part() -> None:
    mixture = Mixture([Part("a", 100, 1), Part("b", 300, 1)], exhausted="stop")
    assert mixture.counts(0, mixture.epoch_rows)[0] == 100
    assert abs(mixture.epoch_rows - 200) <= 2


def test_parts_that_repeat_without_end_never_stop() -> None:
    mixture = Mixture([Part("a", 3, 1), Part("b", 5, 1)])
    assert mixture.epoch_rows == 8
    assert mixture.counts(0, 1_000_000) == [500_000, 500_000]
    assert mixture.at(10**15)[1] > 10**14


def test_weights_default_to_sizes_and_temperature_flattens_them() -> None:
    parts = [Part("a", 900), Part("b", 100)]
    assert Mixture(parts).shares == pytest.approx((0.9, 0.1), abs=1e-4)
    assert Mixture(parts, temperature=2).shares == pytest.approx((0.75, 0.25), abs=1e-4)
    assert Mixture(parts, temperature=100).shares == pytest.approx((0.505, 0.495), abs=1e-3)


def test_the_order_depends_on_the_seed_and_on_nothing_else() -> None:
    def order(seed: int) -> list[tuple[int, int]]:
        mixture = Mixture([Part("a", 40, 2), Part("b", 60, 1)], seed=seed)
        return [mixture.at(position) for position in range(500)]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_golden_order() -> None:
    """The order is part of what a checkpoint relies on: a change of it would resume runs elsewhere."""
    mixture = Mixture([Part("a", 4, 2), Part("b", 8, 1)], seed=11)
    assert [mixture.at(position) for position in range(6)] == GOLDEN


def test_single_part_is_every_position() -> None:
    mixture = Mixture([Part("a", 7)])
    assert [mixture.at(position) for position in range(9)] == [(0, row) for row in range(9)]


def test_sixty_four_parts_of_very_different_sizes() -> None:
    parts = [Part(str(i), 1 + 3**i % 10_007, repeats=1 + i % 3) for i in range(64)]
    mixture = Mixture(parts, exhausted="leave", temperature=3)
    seen, _ = mixture.at_each(np.arange(mixture.epoch_rows))
    assert np.bincount(seen, minlength=64).tolist() == [part.rows * (part.repeats or 1) for part in parts]


@pytest.mark.parametrize(("parts", "position"), list(product([[], [Part("a", 0)]], [0])))
def test_a_mixture_of_nothing_is_refused(parts: list[Part], position: int) -> None:
    with pytest.raises(ValueError, match="needs"):
        Mixture(parts).at(position)


GOLDEN = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (0, 3)]


def test_a_weight_of_nearly_nothing_is_a_weight() -> None:
    parts = [Part("a", 10, 1e9), Part("b", 3, 1e-40)]
    mixture = Mixture(parts, exhausted="leave", temperature=0.1)
    assert mixture.counts(0, mixture.epoch_rows) == [10, 3]


@pytest.mark.parametrize("weights", [(1, 1), (3, 1, 1), (5, 3, 2, 1, 1), (1,) * 64])
def test_windows_of_500_rows_have_the_shares_within_a_hundredth(weights: tuple[int, ...]) -> None:
    mixture = Mixture([Part(str(number), 10**6, weight) for number, weight in enumerate(weights)])
    parts, _ = mixture.at_each(np.arange(3 * BLOCK))
    for part, weight in enumerate(weights):
        assert abs(mixture.shares[part] - weight / sum(weights)) < 1 / BLOCK
        found = np.convolve(parts == part, np.ones(500), "valid") / 500
        assert np.abs(found - mixture.shares[part]).max() < 0.01


def test_a_tiny_weight_has_one_place_of_a_block() -> None:
    mixture = Mixture([Part("tiny", 10, 1e-9), Part("huge", 10, 1e9), Part("small", 10, 1e-9)])
    assert mixture.shares == (1 / BLOCK, 1 - 2 / BLOCK, 1 / BLOCK)
