"""FLOPs from a shape: the known formulas, and how they move with each setting. (Against real counters: tests/integration/catalog.)"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.api import Method
from tuneyard.catalog import forward_flops, shape_from_config, train_flops

SHAPE = shape_from_config(
    {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2}
    | {"intermediate_size": 1536, "vocab_size": 4096}
)
LORA = Method.model_validate({"lora": {"rank": 8}})


def flops(**settings: Any) -> tuple[float, float]:
    found = train_flops(SHAPE, **({"tokens": 1024, "seq_len": 256} | settings))
    return found.model, found.hardware


def test_full_training_is_palms_formula() -> None:
    model, hardware = flops()
    assert model == 1024 * (6 * SHAPE.linear_parameters + 12 * 6 * 8 * 64 * 256)
    assert hardware == model


def test_causal_counts_about_half_of_the_attention() -> None:
    attention = [flops(causal=causal)[0] - 1024 * 6 * SHAPE.linear_parameters for causal in (False, True)]
    assert attention[1] == attention[0] * 257 / 512


def test_packed_documents_do_not_see_each_other() -> None:
    packed = flops(document_lengths=[64] * 16)
    assert packed[0] == flops(seq_len=64)[0]
    assert packed[1] == flops()[1], "eager attention computes what the mask hides"
    assert flops(document_lengths=[64] * 16, attention="flash")[1] < packed[1]


def test_recomputation_is_hardware_work_only() -> None:
    assert flops(recompute=True)[0] == flops()[0]
    assert 1.2 < flops(recompute=True)[1] / flops()[1] < 1.34


def test_lora_saves_the_gradients_of_frozen_weights() -> None:
    assert 0.6 < flops(method=LORA)[0] / flops()[0] < 0.75


def test_a_fused_kernel_computes_scores_again_in_backward() -> None:
    model, hardware = flops(attention="flash")
    assert hardware - model == pytest.approx(0.5 * 1024 * 4 * 6 * 8 * 64 * 256)


def test_a_sliding_window_bounds_what_a_token_sees() -> None:
    windowed = shape_from_config(
        {"model_type": "mistral", "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2}
        | {"intermediate_size": 1536, "vocab_size": 4096, "sliding_window": 64}
    )
    assert train_flops(windowed, tokens=1024, seq_len=256).model == 1024 * (6 * SHAPE.linear_parameters + 12 * 6 * 8 * 64 * 64)


def test_generation_passes_each_token_once_and_the_head_once_per_output() -> None:
    body = SHAPE.linear_parameters - SHAPE.head.weights
    pairs = 10 * 10 + 11 + 12
    expected = 2 * body * 12 + 2 * SHAPE.head.weights * 3 + 4 * 8 * 64 * 6 * pairs
    assert forward_flops(SHAPE, prompt_lengths=[10], output_lengths=[3]) == expected


def test_perplexity_needs_the_head_for_every_token_of_the_prompt() -> None:
    lengths: dict[str, Any] = {"prompt_lengths": [32, 8], "output_lengths": [0, 0]}
    assert forward_flops(SHAPE, prompt_logits=True, **lengths) - forward_flops(SHAPE, **lengths) == 2 * SHAPE.head.weights * 40


def test_lists_of_different_length_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="shorter"):
        forward_flops(SHAPE, prompt_lengths=[1, 2], output_lengths=[1])


@settings(deadline=None)
@given(
    tokens=st.integers(1, 5000),
    seq_len=st.integers(1, 1000),
    method=st.sampled_from(["full", "lora", "dora"]),
    recompute=st.booleans(),
    attention=st.sampled_from(["eager", "sdpa", "flash"]),
)
def test_hardware_never_does_less_than_the_maths_needs(tokens: int, seq_len: int, method: str, recompute: bool, attention: Any) -> None:
    chosen = Method.model_validate({method: {}})
    found = train_flops(SHAPE, tokens=tokens, seq_len=seq_len, method=chosen, recompute=recompute, attention=attention)
    assert 0 < found.model <= found.hardware
