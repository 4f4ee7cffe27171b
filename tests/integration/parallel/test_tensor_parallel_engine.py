"""Models on plain shards in real ranks give the logits, and every gradient, of one process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.ranks.applied_models import Case, differences_of

CASES = (
    Case("llama", micro_batches=2),
    Case("qwen3", micro_batches=2),
    Case("qwen3", rank_of_lora=4, recompute=True),
    Case("deepseek_v3", rank_of_lora=4),
    Case("phi3", rank_of_lora=4),
    Case("gemma", recompute=True),
    Case("phi3", rank_of_lora=4),
    Case("llama4_text"),
    Case("t5", rank_of_lora=4),
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
"""Accumulation with norms of heads, latent attention, experts and their adapters, packed weights, a tie, an encoder with a decoder,
adapters made after the cut; a loss on logits that stay in shards, with a cap on them; a vocabulary that the ranks do not divide. Tokens in
slices, unequal and empty ones too, beside experts, adapters, recomputation, and modules that add the residual themselves."""


FEW = CASES[0:1] + CASES[3:4] + CASES[8:9] + CASES[10:12] + CASES[13:15]
"""Of each kind one: four ranks on two processors wait for each other many times longer than two."""


@pytest.mark.parametrize(
    ("degree", "cases"),
    [(2, CASES), (4, FEW), pytest.param(4, [case for case in CASES if case not in FEW], marks=pytest.mark.long)],
    ids=["two ranks", "four ranks", "four ranks, the others"],
)
def test_logits_and_gradients_are_those_of_one_process(degree: int, cases: Sequence[Case]) -> None:
    found = differences_of(list(cases), degree)

    assert {row.model_type: (row.logits, row.worst, row.gradient) for row in found if row.logits > 1e-5 or row.gradient > 1e-5} == {}
