"""Blocks of 8 bits: what they can be wrong by, and what they must not hide."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.parallel.compressed import BLOCK, FORMATS, BlockFormat, decode, encode

MOST_BLOCKS = 5


def coded(values: torch.Tensor, form: BlockFormat) -> tuple[torch.Tensor, torch.Tensor]:
    """What `values` `[k * BLOCK]` are on the other side, and what is left out."""
    rest = values.clone().view(1, -1)
    return decode(encode(rest, form), form).view(-1), rest.view(-1)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**31), blocks=st.integers(1, MOST_BLOCKS), exponent=st.floats(-20, 20), form=st.sampled_from(["int8", "fp8"]))
def test_no_value_is_wrong_by_more_than_its_format_allows(seed: int, blocks: int, exponent: float, form: str) -> None:
    values = torch.randn(blocks * BLOCK, generator=torch.Generator().manual_seed(seed)) * 10**exponent

    there, rest = coded(values, FORMATS[form])

    largest = values.view(-1, BLOCK).abs().amax(1).repeat_interleave(BLOCK)
    step = largest / FORMATS[form].largest
    half = step / 2 if form == "int8" else torch.maximum(values.abs() * 2**-4, step * 2**-10)  # e4m3: 3 bits, subnormals of 2**-9
    assert bool(((there - values).abs() <= half * 1.001 + 1e-38).all())
    assert torch.allclose(there + rest, values, rtol=1e-5, atol=float(largest.max()) * 1e-6)


@pytest.mark.parametrize("form", FORMATS)
def test_zeros_and_values_too_small_for_a_scale_come_out_as_zeros_and_stay_in_the_rest(form: str) -> None:
    there, rest = coded(torch.full((BLOCK,), 1e-38), FORMATS[form])

    assert bool((there == 0).all())
    assert bool((rest == torch.full((BLOCK,), 1e-38)).all())
    assert bool((coded(torch.zeros(BLOCK), FORMATS[form])[0] == 0).all())


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_a_block_that_is_not_finite_is_nan_and_its_neighbours_are_not(form: str, bad: float) -> None:
    values = torch.ones(3 * BLOCK)
    values[BLOCK + 7] = bad

    there, rest = coded(values, FORMATS[form])

    assert bool(there[BLOCK : 2 * BLOCK].isnan().all())
    assert bool(there[:BLOCK].isfinite().all())
    assert bool(there[2 * BLOCK :].isfinite().all())
    assert bool(rest.isfinite().all())


@pytest.mark.parametrize("form", FORMATS)
def test_an_element_takes_a_byte_and_a_64th(form: str) -> None:
    message = encode(torch.zeros(2, 4 * BLOCK), FORMATS[form])

    assert message.numel() * message.element_size() == 2 * 4 * BLOCK * (1 + 4 / BLOCK)
