"""Model types for which liger-kernel has kernels. Source: liger-kernel 0.8.5, by a test."""

from __future__ import annotations

# fmt: off
_FUSED_LOSS = frozenset(
    {
        "deepseek_v2", "deepseek_v3", "deepseek_v4", "exaone4", "falcon_h1", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma4",
        "gemma4_text", "glm4", "glm4v", "glm4v_moe", "gpt_oss", "hunyuan_v1_dense", "hunyuan_v1_moe", "internvl", "llama", "llama4",
        "llama4_text", "llava", "ministral", "mistral", "mixtral", "mllama", "mllama_text_model", "muse_glimmer", "nemotron", "olmo2",
        "olmo3", "paligemma", "phi3", "qwen2", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_vl", "qwen2_vl_text", "qwen3", "qwen3_5",
        "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next", "qwen3_vl", "qwen3_vl_moe", "qwen3_vl_moe_text",
        "qwen3_vl_text", "smollm3", "smolvlm",
    }
)
_OTHER_KERNELS = frozenset({"granite", "pixtral"})
# fmt: on


def has_liger(model_type: str) -> bool:
    """Whether liger-kernel has kernels for the model type. For any other type it changes nothing."""
    return model_type in _FUSED_LOSS or model_type in _OTHER_KERNELS


def has_fused_loss(model_type: str) -> bool:
    """Whether Liger's loss multiplies by the head piece by piece and keeps no logits."""
    return model_type in _FUSED_LOSS
