"""Models on plain shards in real ranks give the logits, and every gradient, of one process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.ranks.applied_models import Case, differences_of
from tests.zoo.proofs import proven_once

CASES = (
    Case("llama", micro_batches=2),
    Case("qwen3", micro_batches=2),
    Case("qwen3", rank_of_lora=4, recompute=True),
    Case("deepseek_v3", rank_of_lora=4),
    Case("phi3", rank_of_lora=4),
    Case("gemma", recompute=True),
    Case("llama4_text"),
    Case("t5", rank_of_lora=4),
    Case("gptj", micro_batches=2),
    Case("opt", rank_of_lora=4, recompute=True),
    Case("gpt2", {"vocab_size": 387}, rank_of_lora=4),
    Case("llama", sharded_logits=True, micro_batches=2),
    Case("gemma2", {"vocab_size": 387}, sharded_logits=True),
    Case("llama", sliced_tokens=True, micro_batches=2),
    Case("llama", sliced_tokens=True, recompute=True, tokens=10),
    Case("llama", sliced_tokens=True, tokens=3),
    Case("qwen3_moe", sliced_tokens=True),
    Case("deepseek_v3", sliced_tokens=True, rank_of_lora=4),
    Case("gemma2", sliced_tokens=True, sharded_logits=True, recompute=True),
    Case("bloom", sliced_tokens=True),
    Case("gpt_neox", sliced_tokens=True, rank_of_lora=4),
)
"""Accumulation with norms of heads, latent attention, experts and their adapters, packed weights, a tie, an encoder with a decoder and
biases by head, numbers of heads that a module keeps, three blocks in a weight that lies the other way, adapters made after the cut; a
loss on logits that stay in shards, with a cap on them; a vocabulary that the ranks do not divide. Tokens in slices, unequal and empty
ones too, beside experts, adapters, recomputation, and modules that add the residual themselves."""

FEW = (CASES[0], CASES[3], CASES[11])
"""Two heads of keys on four ranks, logits in four shards, latent attention. Four ranks on two processors wait for each other many times
longer than two."""


def assert_equal(cases: Sequence[Case], degree: int) -> None:
    found = differences_of(list(cases), degree)

    assert {row.model_type: (row.logits, row.worst, row.gradient) for row in found if row.logits > 1e-5 or row.gradient > 1e-5} == {}


@pytest.mark.parametrize(("degree", "cases"), [(2, CASES), (4, FEW)], ids=["two ranks", "four ranks"])
@proven_once
def test_logits_and_gradients_are_those_of_one_process(degree: int, cases: Sequence[Case]) -> None:
    assert_equal(cases, degree)


@pytest.mark.long
def test_logits_and_gradients_of_all_cases_on_four_ranks_are_those_of_one_process() -> None:
    """The short test has all cases on two ranks, and `FEW` on four."""
    assert_equal([case for case in CASES if case not in FEW], 4)
