"""Fields of a tiny config that one model type needs beside the common ones."""

from __future__ import annotations

from typing import Any

_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16}
_QSA = {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 64, "indexer_compress_ratio": 4}
_ROPE = {"rope_theta": 10000.0, "rope_type": "default"}

EXCEPTIONS: dict[str, dict[str, Any]] = {
    "bamba": _MAMBA | {"attn_layer_indices": [1]},
    "cohere_compass_text": {"rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "falcon_h1": _MAMBA | {"mamba_d_ssm": 128},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 32},
    "granitemoehybrid": _MAMBA | {"layer_types": ["mamba", "attention"]},
    "inkling_text": {"logits_mup_width_multiplier": 1.0},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
    "kimi_linear": {"linear_head_dim": 16, "linear_num_heads": 4},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]},
    "longcat_flash": {"ffn_hidden_size": 128, "expert_ffn_hidden_size": 64, "zero_expert_num": 2, "qk_head_dim": 32},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1},
    "mpt": {"attn_config": {"attn_pdrop": 0, "alibi": True}},
    "phi4_multimodal": {"vision_config": {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}},
    "qwen4_exp_text": _QSA,
    "reformer": {"is_decoder": True, "axial_pos_embds": False},
    "roc_bert": {"pronunciation_vocab_size": 64, "shape_vocab_size": 64, "pronunciation_embed_dim": 16, "shape_embed_dim": 16},
    "xlstm": {"qk_dim_factor": 1.0, "chunk_size": 16},
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "num_hidden_layers": 4,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "attention_hidden_size": 128,
        "attention_head_dim": 32,
    },
    "zamba2": {"n_mamba_heads": 8},
    "zaya": {"num_experts_per_tok": 1},
}
