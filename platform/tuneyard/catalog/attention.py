"""Implementations of attention in transformers, by model type. Source: the classes of transformers 5.19, by a test."""

from __future__ import annotations

# fmt: off
_WITHOUT_SDPA = frozenset(
    {
        "big_bird", "bigbird_pegasus", "bloom", "codegen", "cpmant", "deepseek_v4", "falcon_mamba", "git", "got_ocr2", "gpt_neo",
        "gpt_neox_japanese", "gpt_oss", "gptj", "granite_swa", "granitemoe_swa", "hy_v4", "mamba", "mamba2", "megatron-bert",
        "mimo_v2_flash", "mpt", "mvp", "openai-gpt", "prophetnet", "reformer", "rembert", "roformer", "rwkv", "trocr", "xglm", "xlm",
        "xlnet", "xlstm",
    }
)
_WITHOUT_FLASH = frozenset(
    {
        "axk2", "big_bird", "bigbird_pegasus", "bloom", "blt", "codegen", "cpmant", "deepseek_v32", "deepseek_v4", "doge", "falcon_mamba",
        "git", "glm_moe_dsa", "got_ocr2", "gpt_neox_japanese", "hy_v4", "inkling_text", "llama4", "llama4_text", "mamba", "mamba2",
        "megatron-bert", "minimax_m3_vl_text", "mpt", "mvp", "openai-gpt", "prophetnet", "qwen4_exp", "qwen4_exp_text", "reformer",
        "rembert", "roformer", "rwkv", "trocr", "xglm", "xlm", "xlnet", "xlstm",
    }
)
# fmt: on


def attention_kinds(model_type: str) -> tuple[str, ...]:
    """The implementations among flash, sdpa and eager, the fastest first. An unknown model type may have all three."""
    flash = () if model_type in _WITHOUT_FLASH else ("flash",)
    sdpa = () if model_type in _WITHOUT_SDPA else ("sdpa",)
    return (*flash, *sdpa, "eager")
