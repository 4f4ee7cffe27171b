"""Architectures without a family of their own: an estimate of their shape, or a refusal."""

from __future__ import annotations

from typing import Any

import pytest

from tuneyard.api import BadInput, Method
from tuneyard.catalog import refuse_encoders, shape_from_config, trainable_parameters

MPT = {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 50432, "max_seq_len": 2048}
MAMBA = {"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 32, "vocab_size": 50280, "state_size": 16}
NEMOTRON_H = {"model_type": "nemotron_h", "hidden_size": 64, "layers_block_type": ["linear_attention", "mlp", "full_attention"]}
GEMMA_3N = {"model_type": "gemma3n", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 384}


@pytest.mark.parametrize(
    ("config", "layers", "hidden", "ffn"),
    [
        (MPT, 32, 4096, 8 * 4096 // 3),
        (MAMBA, 32, 768, 2048),
        (NEMOTRON_H | {"vocab_size": 384, "intermediate_size": 128, "num_attention_heads": 4}, 3, 64, 128),
        ({"model_type": "gemma3n", "text_config": GEMMA_3N | {"intermediate_size": [96, 128]}}, 2, 64, 128),
    ],
    ids=["other names", "no heads", "a list of layers", "numbers per layer"],
)
def test_dimensions_are_found_under_the_names_that_configurations_use(config: dict[str, Any], layers: int, hidden: int, ffn: int) -> None:
    shape = shape_from_config(config)
    assert (shape.layers, shape.hidden, shape.ffn, shape.exact) == (layers, hidden, ffn, False)


def test_the_estimate_of_a_published_model_is_near_its_parameters() -> None:
    """MPT-7B has 6.65 billion."""
    assert shape_from_config(MPT).parameters == pytest.approx(6.65e9, rel=0.05)


def test_one_expert_is_no_mixture() -> None:
    dense = {"model_type": "hunyuan_v1_dense", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 384}
    shape = shape_from_config(dense | {"intermediate_size": 128, "num_experts": 1, "num_experts_per_tok": 1})
    assert shape.experts == 0


def test_lora_targets_of_an_estimated_shape_are_left_to_peft() -> None:
    """Its own names are not known here: `query_key_value` of Falcon is no mistake."""
    falcon = {"model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 384}
    named = Method.model_validate({"lora": {"rank": 8, "targets": ["query_key_value"]}})
    everything = Method.model_validate({"lora": {"rank": 8}})
    shape = shape_from_config(falcon)
    assert trainable_parameters(shape, named) == trainable_parameters(shape, everything) > 0


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "bert", "hidden_size": 768}, "a bert model is an encoder: each token sees the tokens after it"),
        ({"model_type": "bart", "is_encoder_decoder": True, "d_model": 64}, "a bart model has an encoder beside its decoder"),
        ({"model_type": "bart", "is_encoder_decoder": False, "d_model": 64}, "a bart model is the decoder of another model"),
    ],
)
def test_encoders_are_refused_before_anything_is_loaded(config: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        shape_from_config(config)


def test_an_encoder_that_was_made_a_decoder_is_not_refused() -> None:
    refuse_encoders({"model_type": "bert", "is_decoder": True})
