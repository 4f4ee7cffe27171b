"""Row-wise Adagrad beside its formula, and stochastic rounding beside its expectation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.ranking.tables.adagrad import Cells, summed, update
from tuneyard.ranking.tables.rounding import rounded_to_fp16

DRAWS = 20_000


@given(st.lists(st.integers(0, 9), max_size=40), st.booleans())
def test_the_gradients_of_a_row_are_summed_once(ids: list[int], in_bags: bool) -> None:
    rows = torch.tensor(ids, dtype=torch.int32)
    bags = torch.arange(len(ids)) // 3 if in_bags else None
    gradients = torch.randint(-8, 8, (len(ids) if bags is None else -(-len(ids) // 3), 5)).float()

    once, sums = summed(rows, bags, gradients)

    dense = torch.zeros(10, 5)
    for at, row in enumerate(ids):
        dense[row] += gradients[at // 3 if in_bags else at]
    assert once.tolist() == sorted(set(ids))
    assert torch.equal(sums, dense[once])


@pytest.mark.parametrize("columns", [5, 16, 32, 40])
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_an_update_is_that_of_the_formula(columns: int, share: float) -> None:
    torch.manual_seed(0)
    blocks = -(-columns // 16)
    weights, squares = torch.randn(9, columns), torch.rand(9, blocks)
    rows, gradients = torch.tensor([1, 4, 8]), torch.randn(3, columns)
    expected, states = weights.clone(), squares.clone()
    for row, gradient in zip(rows.tolist(), gradients * share, strict=True):
        for block in range(blocks):
            part = slice(16 * block, 16 * (block + 1))
            states[row, block] += gradient[part].square().mean()
            expected[row, part] -= 0.1 * gradient[part] / (states[row, block].sqrt() + 1e-8)

    update(weights, squares, rows, gradients, learning_rate=0.1, epsilon=1e-8, share=share)

    assert torch.allclose(weights, expected, atol=1e-6)
    assert torch.allclose(squares, states, atol=1e-6)


def test_a_row_without_a_gradient_stays() -> None:
    weights, squares = torch.ones(2, 3), torch.zeros(2, 1)

    update(weights, squares, torch.tensor([1]), torch.zeros(1, 3), learning_rate=0.1, epsilon=1e-8)

    assert torch.equal(weights, torch.ones(2, 3))


def cells(rows: int, seed: int = 0, columns: int = 1) -> dict[str, Any]:
    return {"keys": torch.arange(rows, dtype=torch.int32), "columns": torch.arange(columns, dtype=torch.int32), "seed": seed}


@given(st.floats(-70_000, 70_000, width=32) | st.floats(-(2.0**-12), 2.0**-12, width=32))
def test_the_expectation_of_a_rounded_value_is_the_value(value: float) -> None:
    values = torch.full((DRAWS, 1), value)

    found = rounded_to_fp16(values, **cells(DRAWS)).double()

    inside = min(max(value, -65_504.0), 65_504.0)
    low, high = float(found.min()), float(found.max())
    step = max(2.0**-24, 2.0 ** (torch.tensor(abs(inside), dtype=torch.float64).frexp().exponent.item() - 11))
    assert low <= inside <= high or abs(float(found.mean()) - inside) <= 5 * step * 1e-3
    assert high - low <= step * 1.0001
    assert abs(float(found.mean()) - inside) <= 5 * step / 2 / DRAWS**0.5 + step * 2**-13


def test_values_of_fp16_stay() -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    finite = every[every.isfinite()].unsqueeze(1)

    assert torch.equal(rounded_to_fp16(finite.float(), **cells(len(finite))), finite)


def test_steps_rows_and_columns_draw_different_numbers() -> None:
    values = torch.full((2_000, 8), 1.0 + 2.0**-11)  # half a step above 1

    one, again, other = (rounded_to_fp16(values, **cells(2_000, seed, 8)) > 1 for seed in (3, 3, 4))

    assert torch.equal(one, again)
    assert 0.45 < (one == other).float().mean() < 0.55
    assert (one.float().mean(0) - 0.5).abs().max() < 0.05
    assert 0.4 < (one[:, 0] == one[:, 1]).float().mean() < 0.6
    assert 0.4 < (one[:-1] == one[1:]).float().mean() < 0.6


def test_small_updates_are_not_lost_in_fp16() -> None:
    """Each step is a twentieth of what fp16 can tell from 1; rounding to the nearest would leave all rows where they are."""
    weights, squares, rows = torch.ones(4_000, 1, dtype=torch.float16), torch.zeros(4_000, 1), torch.arange(4_000)

    for step in range(40):
        squares.fill_(0.0)
        named = Cells(rows.int(), torch.arange(1, dtype=torch.int32), step)
        update(weights, squares, rows, torch.ones(4_000, 1), learning_rate=2.0**-10 / 20, epsilon=0.0, cells=named)

    assert float(1 - weights.float().mean()) == pytest.approx(40 * 2.0**-10 / 20, rel=0.05)
