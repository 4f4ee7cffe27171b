"""Models on plain shards in real ranks give the logits, and every gradient, of one process."""

from __future__ import annotations

import pytest
from tests.applied_models import Case, differences_of

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


@pytest.mark.parametrize("degree", [2, 4])
def test_logits_and_gradients_are_those_of_one_process(degree: int) -> None:
    found = differences_of(list(CASES), degree)

    assert {row.model_type: (row.logits, row.worst, row.gradient) for row in found if row.logits > 1e-5 or row.gradient > 1e-5} == {}
