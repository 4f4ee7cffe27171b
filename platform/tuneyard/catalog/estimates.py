"""Dimensions of an architecture without a family here, under any of their usual field names: enough for an estimate.

The field names are those of causal models in transformers 5.19. A missing field gets the most common value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.catalog.config_reader import ConfigReader

_NAMES = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim_model", "emb_dim", "embedding_dim"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "num_blocks"),
    "vocab_size": ("vocab_size",),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads"),
    "head_dim": ("head_dim", "attention_head_dim", "dim_head"),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim", "decoder_ffn_dim", "ffn_hidden_size", "dim_ff", "dff"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"),
    "num_experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("num_experts_per_tok", "moe_topk", "moe_top_k", "moe_k", "top_k_experts", "num_experts_per_token"),
}
_NEEDED = ("hidden_size", "num_hidden_layers", "vocab_size")


def usual_names(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """A Llama-like configuration of the same size; None if width, depth or vocabulary cannot be found."""
    found = {name: _number(values, names) for name, names in _NAMES.items()}
    found["num_hidden_layers"] = found["num_hidden_layers"] or _listed_layers(values)
    if any(found[name] is None for name in _NEEDED):
        return None
    hidden = found["hidden_size"] or 1
    heads = found["num_attention_heads"] or max(1, hidden // 64)
    shared = found["num_key_value_heads"] or heads
    found |= {
        "num_attention_heads": heads,
        "num_key_value_heads": shared if heads % shared == 0 else heads,
        "head_dim": found["head_dim"] or max(1, hidden // heads),
        # Without gates, as these models are counted, a block of this width has 4 times the hidden size, as in GPT-2 and MPT.
        "intermediate_size": found["intermediate_size"] or 8 * hidden // 3,
    }
    if (found["num_experts"] or 0) < 2 or not found["num_experts_per_tok"]:
        found |= {"num_experts": None, "num_experts_per_tok": None}
    return {name: value for name, value in values.items() if name != "text_config"} | found


def width_of(config: Mapping[str, Any]) -> int | None:
    """The hidden size of a model, by its config.json; None where it names none."""
    return _number(ConfigReader(config).values, _NAMES["hidden_size"])


def _listed_layers(values: Mapping[str, Any]) -> int | None:
    """Number of layers in a configuration that lists the kind of each layer (Nemotron-H)."""
    kinds = values.get("layers_block_type") or values.get("layer_types")
    return len(kinds) if isinstance(kinds, list) else None


def _number(values: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first field that is a positive whole number; for a number per layer, the largest."""
    for name in names:
        value = values.get(name)
        numbers = value if isinstance(value, list) else [value]
        whole = [each for each in numbers if isinstance(each, int) and not isinstance(each, bool) and each > 0]
        if whole and len(whole) == len(numbers):
            return max(whole)
    return None
