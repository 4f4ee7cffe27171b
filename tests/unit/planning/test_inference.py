"""Engines of score tasks: the KV cache to the byte, and the tensor parallelism that a model needs."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planning.setups import LLAMA_8B, LLAMA_70B

from tuneyard.api import BadInput, ScoreTask
from tuneyard.catalog import gpu, shape_from_config
from tuneyard.planning import kv_bytes_per_sequence, resolve_engine_plan

DEEPSEEK = shape_from_config(
    {"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128}
    | {"intermediate_size": 18432, "moe_intermediate_size": 2048, "vocab_size": 129280, "n_routed_experts": 256, "n_shared_experts": 1}
    | {"num_experts_per_tok": 8, "first_k_dense_replace": 3, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64}
    | {"qk_nope_head_dim": 128, "v_head_dim": 128}
)


def score(**engine: Any) -> ScoreTask:
    return ScoreTask.model_validate({"model": {"name": "m"}, "data": {"source": "d", "prompt": "q"}, "engine": engine})


def test_a_token_of_llama_3_8b_takes_128_kib() -> None:
    assert kv_bytes_per_sequence(LLAMA_8B, 1, "bf16") == 2 * 32 * 8 * 128 * 2 == 128 * 1024


def test_latent_attention_keeps_one_latent_for_all_heads() -> None:
    # DeepSeek-V2 (2024), 2.1.4: (512 + 64) elements per layer.
    assert kv_bytes_per_sequence(DEEPSEEK, 1, "bf16") == 61 * 576 * 2


def test_key_heads_are_repeated_beyond_their_number() -> None:
    within, beyond = (kv_bytes_per_sequence(LLAMA_8B, 1, "bf16", degree) for degree in (8, 16))
    assert beyond == 2 * within


def test_a_70b_model_needs_two_gpus_of_141_gb_or_four_of_80() -> None:
    assert resolve_engine_plan(score(), LLAMA_70B, gpu("h200-141gb")).tensor_parallel == 2
    found = resolve_engine_plan(score(), LLAMA_70B, gpu("h100-80gb"))
    assert (found.tensor_parallel, found.engines_per_node) == (4, 2)
    assert found.weights_gb == pytest.approx(137.95 / 4, rel=1e-3)


def test_a_degree_in_the_file_is_kept_or_refused_with_one_that_fits() -> None:
    assert resolve_engine_plan(score(tensorParallel=8), LLAMA_70B, gpu("h100-80gb")).engines_per_node == 1
    with pytest.raises(BadInput) as refused:
        resolve_engine_plan(score(tensorParallel=1), LLAMA_70B, gpu("h100-80gb"))
    assert "weights take 138.0 GB of each" in refused.value.cause
    assert refused.value.next_step == "set engine.tensorParallel to 4"
    with pytest.raises(BadInput, match="3 does not divide 32 heads"):
        resolve_engine_plan(score(tensorParallel=3), LLAMA_8B, gpu("h100-80gb"))


@pytest.mark.parametrize(("heads", "kv_heads", "works"), [(12, 3, [1, 3, 6]), (32, 8, [1, 2, 4, 8]), (14, 2, [1, 2]), (8, 1, [1, 2, 4, 8])])
def test_ranks_divide_kv_heads_or_repeat_them_evenly(heads: int, kv_heads: int, works: list[int]) -> None:
    shape = replace(LLAMA_8B, heads=heads, kv_heads=kv_heads, ffn=5040 * 16)
    for degree in range(1, 9):
        if degree in works:
            assert resolve_engine_plan(score(tensorParallel=degree), shape, gpu("h100-80gb")).tensor_parallel == degree
            continue
        with pytest.raises(BadInput, match=f"tensorParallel {degree} does not divide") as refused:
            resolve_engine_plan(score(tensorParallel=degree), shape, gpu("h100-80gb"))
        *first, last = map(str, works)
        assert refused.value.next_step == f"set engine.tensorParallel to {', '.join(first)} or {last}"


def test_latent_attention_has_no_kv_heads_to_divide() -> None:
    assert resolve_engine_plan(score(tensorParallel=16), DEEPSEEK, gpu("h200-141gb"), gpus_per_node=16).tensor_parallel == 16


def test_the_largest_batch_that_is_advised_fits_and_one_more_does_not() -> None:
    with pytest.raises(BadInput, match="batch 1,000,000 is too large") as refused:
        resolve_engine_plan(score(batch=1_000_000, tensorParallel=1), LLAMA_8B, gpu("h100-80gb"))
    largest = int(refused.value.next_step.split()[-1].replace(",", ""))
    assert resolve_engine_plan(score(batch=largest, tensorParallel=1), LLAMA_8B, gpu("h100-80gb")).max_sequences >= 1
    with pytest.raises(BadInput, match="is too large"):
        resolve_engine_plan(score(batch=largest + 1, tensorParallel=1), LLAMA_8B, gpu("h100-80gb"))


def test_a_model_that_no_machine_holds_is_refused() -> None:
    with pytest.raises(BadInput, match="more memory than t4-16gb"):
        resolve_engine_plan(score(), LLAMA_70B, gpu("t4-16gb"))


@given(st.sampled_from(["a100-40gb", "h100-80gb", "h200-141gb"]), st.integers(1, 512), st.integers(128, 8192), st.floats(0.5, 1.0))
def test_terms_stay_within_the_device_and_sequences_within_the_cache(sku: str, batch: int, longest: int, share: float) -> None:
    shape = replace(LLAMA_8B, max_positions=1 << 20)
    found = resolve_engine_plan(score(batch=batch, maxLength=longest, memoryFraction=share), shape, gpu(sku))
    assert found.total_gb <= gpu(sku).memory_gb
    assert 1 <= found.max_sequences <= batch
    assert found.max_sequences * longest * found.kv_bytes_per_token <= found.kv_gb * found.tensor_parallel * 1e9 * (1 + 1e-9)
