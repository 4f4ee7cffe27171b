"""Implementations of attention in transformers, by model type. Source: the classes of transformers 5.19, by a test."""

from __future__ import annotations

from typing import Literal

Kind = Literal["flash", "sdpa", "eager"]

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
_CAPPED = frozenset({"gemma2", "vaultgemma"})
"""Models that cap attention scores. torch's kernels do not: sdpa drops the cap without a word."""
_OWN_SCORES = frozenset({"gpt_oss", "granite_swa", "granitemoe_swa", "mimo_v2_flash"}) | _CAPPED
_OWN_CLASSES = frozenset({"falcon", "gpt_neo", "gptj", "recurrent_gemma"})
"""Models that compute attention outside of transformers' interface."""
WIDEST_FLASH_HEAD = 256
# fmt: on


def attention_kinds(model_type: str) -> tuple[Kind, ...]:
    """The implementations among flash, sdpa and eager, the best first. An unknown model type may have all three."""
    flash: tuple[Kind, ...] = () if model_type in _WITHOUT_FLASH else ("flash",)
    sdpa: tuple[Kind, ...] = () if model_type in _WITHOUT_SDPA else ("sdpa",)
    return (*flash, "eager", *sdpa) if model_type in _CAPPED else (*flash, *sdpa, "eager")


def has_varlen(model_type: str) -> bool:
    """Whether flash attention works by the kernel inside torch. False: it needs the package flash-attn, or is not there at all."""
    return model_type not in _WITHOUT_FLASH | _OWN_SCORES | _OWN_CLASSES
