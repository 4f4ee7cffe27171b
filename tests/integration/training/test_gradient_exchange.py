"""The compressed all-reduce between real ranks: equal everywhere, near the true mean, and smaller on the wire."""

from __future__ import annotations

import pytest
import torch
from tests.exchanges import averaged


@pytest.mark.parametrize("form", ["int8", "fp8"])
@pytest.mark.parametrize(("elements", "ranks"), [(1, 2), (257, 3), (5_001, 4)])
def test_all_ranks_get_the_same_bits_near_the_mean(form: str, elements: int, ranks: int) -> None:
    answers = averaged(form, elements, ranks=ranks)

    found, expected, _ = answers[0]
    assert all(torch.equal(other, found) for other, _, _ in answers)
    assert (found - expected).abs().max() < (0.05 if form == "int8" else 0.3)


def test_rounding_errors_do_not_add_up_over_steps() -> None:
    """Error feedback: what 50 steps leave out in all is no more than what one step does."""
    once, expected_once, _ = averaged("fp8", 3_000, ranks=2)[0]
    often, expected_often, _ = averaged("fp8", 3_000, ranks=2, steps=50)[0]

    assert (often - expected_often).abs().mean() < 1.5 * (once - expected_once).abs().mean()


def test_a_rank_sends_a_quarter_of_what_fp32_takes() -> None:
    elements = 64_000

    plain, compressed = (averaged(form, elements, ranks=2)[0][2] for form in ("none", "int8"))

    assert plain == 4 * elements
    assert compressed == pytest.approx(plain / 4, rel=0.03)


@pytest.mark.parametrize("form", ["none", "int8"])
def test_what_is_not_finite_on_one_rank_is_not_finite_on_all(form: str) -> None:
    answers = averaged(form, 1_000, ranks=3, bad_rank=1)

    assert not any(found[500].isfinite() for found, _, _ in answers)
    assert all(found[:200].isfinite().all() for found, _, _ in answers)


def test_ranks_of_a_host_share_the_network() -> None:
    """Two hosts of two ranks: each rank has half of the gradients cross, so that a host sends as much as one rank alone."""
    alone = averaged("int8", 64_000, ranks=2)[0]
    shared = averaged("int8", 64_000, ranks=4, per_host=2)

    assert all(torch.equal(found, shared[0][0]) for found, _, _ in shared)
    assert (shared[0][0] - shared[0][1]).abs().max() < 0.05
    assert shared[0][2] == pytest.approx(alone[2] / 2, rel=0.02)
