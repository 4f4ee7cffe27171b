"""The classes of transformers that can be written as GGUF: one entry each, with what llama.cpp computes otherwise.

Names of tensors and keys are those of the `gguf` package. An entry is right if llama.cpp computes what transformers does, which each export
proves (`proof`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tuneyard.api import BadInput

Config = Any
Change = Callable[[torch.Tensor, str, Config], torch.Tensor]


@dataclass(frozen=True)
class Architecture:
    """`name`: of the architecture in GGUF. `activation`: what llama.cpp computes in the feed-forward layers. `change`: of a weight, by its
    name in transformers. `windows`: whether llama.cpp has the sliding window of the configuration; else the context ends at its length.
    """

    name: str
    activation: str = "silu"
    change: Change | None = None
    windows: bool = False


def _in_pairs(weight: torch.Tensor, name: str, config: Config) -> torch.Tensor:
    """Rows of queries and keys in the order in which llama.cpp rotates them: neighbors are a pair. In transformers, the halves of a head
    are.
    """
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
    if heads is None:
        return weight
    rows = weight.shape[0] // heads
    return weight.reshape(heads, 2, rows // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _plus_one(weight: torch.Tensor, name: str, _: Config) -> torch.Tensor:
    """Gemma's norms multiply by one plus the weight, and llama.cpp's by the weight."""
    return weight + 1 if name.endswith("norm.weight") else weight


ARCHITECTURES = {
    "LlamaForCausalLM": Architecture("llama", change=_in_pairs),
    "MistralForCausalLM": Architecture("llama", change=_in_pairs),
    "Qwen2ForCausalLM": Architecture("qwen2"),
    "Qwen3ForCausalLM": Architecture("qwen3"),
    "Gemma3ForCausalLM": Architecture("gemma3", "gelu_pytorch_tanh", _plus_one, windows=True),
}


def architecture_of(config: Config) -> Architecture:
    """The entry of a model. Raises BadInput for other classes, and for settings that llama.cpp does not compute."""
    name = (config.architectures or ["a model without a class"])[0]
    if name not in ARCHITECTURES:
        raise BadInput(
            f"{name} cannot be exported as GGUF yet: {', '.join(sorted(ARCHITECTURES))} can",
            "write a model folder (tuneyard export --format merged), and give it to convert_hf_to_gguf.py of llama.cpp",
        )
    found = ARCHITECTURES[name]
    activation = getattr(config, "hidden_act", None) or getattr(config, "hidden_activation", None)
    if activation != found.activation:
        raise BadInput(f"llama.cpp computes {name} with {found.activation}, and this model has {activation}", "use vLLM, or transformers")
    kind = rope_of(config).get("rope_type", "default")
    if kind not in ("default", "linear", "yarn", "llama3"):
        raise BadInput(f"the rotary embedding of this model ({kind}) cannot be exported yet", "use vLLM, or transformers")
    return found


def rope_of(config: Config) -> dict[str, Any]:
    """The rotary embedding of layers that attend to all tokens."""
    told = getattr(config, "rope_parameters", None) or {}
    return dict(told.get("full_attention", told))


def rope_factors(config: Config) -> torch.Tensor | None:
    """Llama 3's divisors of the frequencies, shape (head width / 2), which GGUF stores as a tensor; None for other models."""
    if rope_of(config).get("rope_type") != "llama3":
        return None
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    width = head_width(config)
    plain = 1.0 / (rope_of(config)["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.float32) / width))
    return plain / scaled


def head_width(config: Config) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def context_length(config: Config, found: Architecture) -> int:
    """Tokens of the context. llama.cpp attends to all tokens where a model of transformers attends to a window: it is right up to that
    length.
    """
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    longest = int(config.max_position_embeddings)
    return longest if found.windows or not window else min(longest, int(window))
