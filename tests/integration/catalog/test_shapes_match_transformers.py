"""Shapes against the real models: every parameter counted, on the meta device, so that nothing is allocated."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tests.zoo.proofs import proven_once
from transformers import AutoConfig, AutoModelForCausalLM

from tuneyard.api import Method
from tuneyard.catalog import ModelShape, shape_from_config, trainable_parameters

SMALL = {
    "hidden_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "intermediate_size": 160,
    "vocab_size": 512,
    "pad_token_id": 0,
}
GQA = {**SMALL, "num_key_value_heads": 2}
EXPERTS = {**GQA, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
LATENT = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12}
DEEPSEEK = {**SMALL, **LATENT, "moe_intermediate_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 1}
GPT2 = {"n_embd": 96, "n_head": 4, "n_layer": 3, "n_positions": 128, "vocab_size": 512}
OPT = {
    "hidden_size": 96,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "ffn_dim": 200,
    "vocab_size": 512,
    "max_position_embeddings": 64,
    "word_embed_proj_dim": 96,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", GQA),
    "llama, tied, biased": ("llama", {**GQA, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "head_dim": 24}),
    "llama, one key head per query head": ("llama", SMALL),
    "mistral": ("mistral", {**GQA, "sliding_window": 64}),
    "qwen2": ("qwen2", GQA),
    "qwen2, tied": ("qwen2", {**GQA, "tie_word_embeddings": True}),
    "qwen3": ("qwen3", {**GQA, "head_dim": 32}),
    "gemma": ("gemma", {**GQA, "head_dim": 32}),
    "gemma2": ("gemma2", {**GQA, "head_dim": 32}),
    "gemma3": ("gemma3_text", {**GQA, "head_dim": 32}),
    "granite": ("granite", GQA),
    "smollm3": ("smollm3", GQA),
    "phi": ("phi", SMALL),
    "phi3": ("phi3", GQA),
    "gpt2": ("gpt2", GPT2),
    "gpt_neox": ("gpt_neox", SMALL),
    "opt": ("opt", OPT),
    "mixtral": ("mixtral", {**GQA, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": ("qwen2_moe", {**EXPERTS, "shared_expert_intermediate_size": 64, "mlp_only_layers": [1]}),
    "qwen3_moe": ("qwen3_moe", {**EXPERTS, "head_dim": 16, "decoder_sparse_step": 2}),
    "deepseek_v2": ("deepseek_v2", {**DEEPSEEK, "q_lora_rank": None, "n_shared_experts": 2}),
    "deepseek_v3": ("deepseek_v3", {**DEEPSEEK, "q_lora_rank": 24, "n_group": 2, "topk_group": 1}),
}


def build(name: str) -> tuple[Any, ModelShape]:
    model_type, values = MODELS[name]
    config = AutoConfig.for_model(model_type, **values)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return model, shape_from_config(config.to_dict())


@pytest.mark.parametrize("name", MODELS)
@proven_once
def test_parameters_are_those_of_the_model(name: str) -> None:
    model, shape = build(name)
    assert shape.exact
    assert shape.parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", MODELS)
@proven_once
def test_lora_on_all_linear_layers_trains_what_peft_trains(name: str) -> None:
    model, shape = build(name)
    adapted = get_peft_model(model, LoraConfig(r=3, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert trainable_parameters(shape, Method.model_validate({"lora": {"rank": 3}})) == adapted.get_nb_trainable_parameters()[0]


@pytest.mark.parametrize(
    ("name", "method", "settings"),
    [
        ("llama", "lora", {"target_modules": ["q_proj", "v_proj"]}),
        ("llama", "dora", {"target_modules": "all-linear"}),
        ("llama", "lora", {"target_modules": ["down_proj", "lm_head"]}),
        ("llama", "lora", {"target_modules": ["o_proj"], "modules_to_save": ["lm_head", "embed_tokens"]}),
        ("gpt2", "lora", {"target_modules": ["c_proj"]}),
        ("gpt2", "dora", {"target_modules": ["c_attn"]}),
        ("mixtral", "lora", {"target_modules": ["w1", "w2", "w3"]}),
        ("deepseek_v3", "lora", {"target_modules": ["kv_b_proj", "gate_proj", "up_proj", "down_proj"]}),
        ("qwen2_moe", "lora", {"target_modules": ["gate_proj", "up_proj", "down_proj"]}),
    ],
)
@proven_once
def test_explicit_lora_targets_train_what_peft_trains(name: str, method: str, settings: dict[str, Any]) -> None:
    model, shape = build(name)
    adapted = get_peft_model(model, LoraConfig(r=5, use_dora=method == "dora", task_type="CAUSAL_LM", **settings))
    ours = {"rank": 5, "targets": settings["target_modules"], "save_modules": settings.get("modules_to_save", [])}
    assert trainable_parameters(shape, Method.model_validate({method: ours})) == adapted.get_nb_trainable_parameters()[0]
