"""Shapes that are read off the built model: the same as those of exact families, and right for kinds that no family describes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.integration.catalog.test_shapes_match_transformers import MODELS
from tests.zoo.proofs import proven_once
from transformers import AutoConfig, AutoModelForCausalLM

from tuneyard.api import BadInput
from tuneyard.catalog import ModelShape, shape_from_config
from tuneyard.catalog.built import _built, model_shape_of
from tuneyard.catalog.config_reader import config_in

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 512}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_expand": 2}
OTHERS: dict[str, dict[str, Any]] = {
    "bloom": {"hidden_size": 64, "n_layer": 3, "n_head": 4, "vocab_size": 512},
    "falcon": {**SMALL, "new_decoder_architecture": False},
    "gptj": {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 512, "rotary_dim": 8},
    "gpt_bigcode": {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 512, "n_positions": 64},
    "starcoder2": {**SMALL, "num_key_value_heads": 2},
    "nemotron": {**SMALL, "num_key_value_heads": 2, "head_dim": 16},
    "glm4_moe": {
        **SMALL,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    },
    "gpt_oss": {**SMALL, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    "ernie4_5_moe": {**SMALL, "num_key_value_heads": 2, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32},
    "llama4_text": {**SMALL, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4, "intermediate_size_mlp": 96},
    "mamba": {"hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 512},
    "bamba": {**SMALL, "num_key_value_heads": 2, "attn_layer_indices": [1], **MAMBA},
}
ACTIVE = {"glm4_moe": (8, 2), "gpt_oss": (4, 2), "ernie4_5_moe": (4, 2), "llama4_text": (4, 1)}


@pytest.mark.parametrize("name", MODELS)
@proven_once
def test_reading_off_finds_what_exact_families_know(name: str) -> None:
    kind, values = MODELS[name]
    config = AutoConfig.for_model(kind, **values).to_dict()
    exact, built = shape_from_config(config), _built(config)

    assert isinstance(built, ModelShape)
    assert built.parameters == exact.parameters
    assert built.active_parameters == exact.active_parameters
    assert built.linear_parameters == exact.linear_parameters
    for field in (
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "vocab",
        "gated",
        "tied",
        "experts",
        "experts_per_token",
        "value_dim",
        "head_dim",
    ):
        assert getattr(built, field) == getattr(exact, field), field


@pytest.mark.parametrize("kind", OTHERS)
@proven_once
def test_kinds_without_an_exact_family(kind: str) -> None:
    config = AutoConfig.for_model(kind, **OTHERS[kind])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)

    shape = model_shape_of(config.to_dict())

    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert (shape.experts, shape.experts_per_token) == ACTIVE.get(kind, (0, 0))
    assert shape.other_parameters < 0.1 * shape.parameters, "nearly all of it is matrices"
    attending = {"mamba": 0, "bamba": 1}.get(kind, 3)
    assert shape.layers - (shape.sliding_layers if shape.sliding_window == 1 else 0) == attending


def test_a_file_is_read_as_transformers_has_written_it(tmp_path: Path) -> None:
    """Infinity, which JSON lacks, is the default of a field of most state-space models."""
    AutoConfig.for_model("mamba2", num_heads=8, head_dim=16, hidden_size=64, num_hidden_layers=3, vocab_size=512).save_pretrained(tmp_path)
    assert "__float__" in (tmp_path / "config.json").read_text()
    assert not model_shape_of(config_in(tmp_path)).assumed


def test_a_kind_that_transformers_does_not_know_is_as_its_dimensions_say_and_said_to_be_assumed() -> None:
    config = {"model_type": "brandnew", **SMALL}
    found = model_shape_of(config)
    assert replace(found, assumed="") == replace(shape_from_config(config), assumed="")
    assert "transformers cannot build it here (ValueError: " in found.assumed
    assert "brandnew" in found.assumed
    with pytest.raises(BadInput, match="cannot tell the shape"):
        model_shape_of({"model_type": "brandnew"})
    with pytest.raises(BadInput, match="cannot tell the shape"):
        model_shape_of({"model_type": "mpt", "d_model": "many"})
    with pytest.raises(BadInput, match="is an encoder"):
        model_shape_of({"model_type": "bert", **SMALL})


def test_a_configuration_of_a_million_layers_is_not_built() -> None:
    """It would take minutes, and gigabytes of modules."""
    for fields in ({"num_hidden_layers": 10**6}, {"num_hidden_layers": 900, "num_experts": 10**6, "num_experts_per_tok": 1}):
        shape = model_shape_of({"model_type": "qwen3_next", **SMALL, "num_key_value_heads": 2, **fields})
        assert shape.layers == fields["num_hidden_layers"]


def test_hostile_dimensions_are_refused_or_estimated() -> None:
    for fields in (
        {"hidden_size": 10**18},
        {"vocab_size": -1},
        {"num_attention_heads": "many"},
        {"rope_parameters": [[]]},
        {"hidden_size": None},
    ):
        try:
            model_shape_of({"model_type": "olmo2", **SMALL, **fields})
        except BadInput:
            continue
