"""The compressed all-reduce between real ranks: equal everywhere, near the true mean, and smaller on the wire."""

from __future__ import annotations

import pytest
import torch
from tests.ranks.exchanges import Averaged, Case, averaged

FORMS = ("int8", "fp8")
SIZES = (1, 257, 5_001)
LONG = 50
"""Steps over which rounding errors could add up."""
LARGE = 64_000


@pytest.fixture(scope="module")
def answers() -> dict[int, dict[Case, list[Averaged]]]:
    """What each rank got, by number of ranks and case."""
    sizes = [Case(form=form, elements=elements) for form in FORMS for elements in SIZES]
    bad = [Case(form=form, elements=1_000, bad_rank=1) for form in ("none", "int8")]
    two = [Case(form="fp8", elements=3_000, steps=steps) for steps in (1, LONG)]
    two += [Case(form=form, elements=LARGE) for form in ("none", "int8")]
    four = [Case(form="int8", elements=LARGE, per_host=2), Case(form="int8", elements=1, per_host=2)]
    cases = {2: [*sizes, *two], 3: [*sizes, *bad], 4: [*sizes, *four]}
    return {ranks: dict(zip(each, averaged(each, ranks=ranks), strict=True)) for ranks, each in cases.items()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("elements", SIZES)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_all_ranks_get_the_same_bits_near_the_mean(
    answers: dict[int, dict[Case, list[Averaged]]], form: str, elements: int, ranks: int
) -> None:
    first, *others = answers[ranks][Case(form=form, elements=elements)]

    assert all(torch.equal(other.found, first.found) for other in others)
    assert (first.found - first.expected).abs().max() < (0.05 if form == "int8" else 0.3)


def test_rounding_errors_do_not_add_up_over_steps(answers: dict[int, dict[Case, list[Averaged]]]) -> None:
    """Error feedback: what 50 steps leave out in all is no more than what one step does."""
    once, often = (answers[2][Case(form="fp8", elements=3_000, steps=steps)][0] for steps in (1, LONG))

    assert (often.found - often.expected).abs().mean() < 1.5 * (once.found - once.expected).abs().mean()


def test_a_rank_sends_a_quarter_of_what_fp32_takes(answers: dict[int, dict[Case, list[Averaged]]]) -> None:
    plain, compressed = (answers[2][Case(form=form, elements=LARGE)][0].bytes_sent for form in ("none", "int8"))

    assert plain == 4 * LARGE
    assert compressed == pytest.approx(plain / 4, rel=0.03)


@pytest.mark.parametrize("form", ["none", "int8"])
def test_what_is_not_finite_on_one_rank_is_not_finite_on_all(answers: dict[int, dict[Case, list[Averaged]]], form: str) -> None:
    found = [each.found for each in answers[3][Case(form=form, elements=1_000, bad_rank=1)]]

    assert not any(each[500].isfinite() for each in found)
    assert all(each[:200].isfinite().all() for each in found)


def test_ranks_of_a_host_share_the_network(answers: dict[int, dict[Case, list[Averaged]]]) -> None:
    """Two hosts of two ranks: each rank has half of the gradients cross, so that a host sends as much as one rank alone."""
    alone = answers[2][Case(form="int8", elements=LARGE)][0]

    for elements in (LARGE, 1):
        first, *others = answers[4][Case(form="int8", elements=elements, per_host=2)]
        assert all(torch.equal(other.found, first.found) for other in others)
        assert (first.found - first.expected).abs().max() < 0.05
    shared = answers[4][Case(form="int8", elements=LARGE, per_host=2)][0]
    assert shared.bytes_sent == pytest.approx(alone.bytes_sent / 2, rel=0.02)
