"""Construction of each architecture: a Hugging Face configuration -> its ModelShape.

Tests compare it with `AutoModelForCausalLM.from_config` parameter for parameter. Names, fused tensors and defaults are those of
transformers
5. Names that LoRA can adapt are those of PEFT 0.21, which maps the expert names of transformers 4 onto fused tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.catalog.config_reader import ConfigReader, config_in
from tuneyard.catalog.encoders import refuse_encoders
from tuneyard.catalog.estimates import usual_names
from tuneyard.catalog.experts import FeedForward, expert_layers
from tuneyard.catalog.projections import feed_forward, head, layer_projection, self_attention
from tuneyard.catalog.shapes import ModelShape, Projection


@dataclass(frozen=True, kw_only=True)
class _Core:
    """The dimensions that all families share."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_positions: int


def shape_from_config(values: Mapping[str, Any]) -> ModelShape:
    """The shape of the model in a Hugging Face `config.json`.

    An unknown `model_type` with Llama's dimensions is assumed to be built like Llama, with `exact=False`. Raises BadInput if dimensions are
    missing or do not divide.
    """
    config = ConfigReader(values)
    refuse_encoders(values)
    family = _FAMILIES.get(config.model_type)
    if family is not None:
        return family(config)
    usual = usual_names(config.values)
    if usual is None:
        raise BadInput(
            f"cannot tell the shape of a model of type {config.model_type or '(model_type is absent)'!r} from its config.json",
            f"use one of these architectures: {', '.join(sorted(_FAMILIES))}",
        )
    return replace(_llama_like(ConfigReader(usual), exact=False), assumed="nothing but its config.json was read")


def shape_from_folder(folder: Path | str) -> ModelShape:
    """The shape of the model saved in a folder. Raises BadInput if there is no readable `config.json` in it."""
    return shape_from_config(config_in(folder))


def _core(config: ConfigReader, *, head_dim: int | None = None, kv_heads: int | None = None) -> _Core:
    """Shared dimensions. `head_dim` and `kv_heads` are the family's defaults, otherwise hidden / heads, and the number of heads."""
    hidden, heads = config.number("hidden_size", "n_embd"), config.number("num_attention_heads", "n_head")
    if head_dim is None and not config.has("head_dim") and hidden % heads:
        raise BadInput(f"hidden_size {hidden} does not divide into {heads} attention heads", "correct the model's config.json")
    key_value_heads = config.number("num_key_value_heads", default=kv_heads or heads)
    if heads % key_value_heads:
        raise BadInput(f"{heads} attention heads do not divide into {key_value_heads} key-value heads", "correct the model's config.json")
    return _Core(
        layers=config.number("num_hidden_layers", "n_layer"),
        hidden=hidden,
        heads=heads,
        kv_heads=key_value_heads,
        head_dim=config.number("head_dim", default=head_dim or hidden // heads),
        vocab=config.number("vocab_size"),
        max_positions=config.number("max_position_embeddings", "n_positions", default=2048),
    )


def _sliding(config: ConfigReader, layers: int) -> tuple[int | None, int]:
    """The window, and the number of layers with it: from `layer_types` if given, else by the family's rule."""
    by_default = config.model_type in _WINDOW_BY_DEFAULT and not config.is_null("sliding_window")
    window: int | None = config.value("sliding_window", default=4096 if by_default else None)
    types = config.value("layer_types", default=None)
    if window is None:
        return None, 0
    if types is not None:
        count = sum(kind == "sliding_attention" for kind in types)
    elif config.model_type.startswith("qwen"):
        count = max(0, layers - config.number("max_window_layers", default=28)) if config.flag("use_sliding_window") else 0
    elif config.model_type == "gemma2":
        count = (layers + 1) // 2
    elif config.model_type.startswith("gemma3"):
        count = layers - layers // config.number("sliding_window_pattern", default=6)
    else:
        count = layers
    return (window, count) if count else (None, 0)


_WINDOW_BY_DEFAULT = {"mistral", "gemma2", "gemma3", "gemma3_text"}


def _llama_like(config: ConfigReader, *, exact: bool = True) -> ModelShape:
    """RMSNorm, rotary positions, gated feed-forward, optional grouped-query attention and experts: most models since 2023."""
    kind = config.model_type
    gemma, qwen2 = kind.startswith("gemma"), kind in ("qwen2", "qwen2_moe")
    default_head = 256 if gemma else 128 if kind == "qwen3" else None
    default_kv = {"mistral": 8, "mixtral": 8, "gemma": 16, "gemma2": 4, "gemma3": 4, "gemma3_text": 4, "qwen3_moe": 4}.get(kind)
    core = _core(config, head_dim=default_head, kv_heads=default_kv)
    bias = config.flag("attention_bias")
    qkv_bias = config.flag("qkv_bias", default=True) if qwen2 else bias
    attention = self_attention(core.layers, core.hidden, core.heads, core.kv_heads, core.head_dim, qkv_bias=qkv_bias, output_bias=bias)
    ffn = config.number("intermediate_size")
    window, sliding_layers = _sliding(config, core.layers)
    if config.has("num_experts_per_tok"):
        blocks = expert_layers(config, core.layers, core.hidden)
    else:
        blocks = FeedForward(projections=feed_forward(core.layers, core.hidden, ffn, bias=config.flag("mlp_bias")))
    four_norms = kind in ("gemma2", "gemma3", "gemma3_text")
    qk_norm = kind in ("qwen3", "qwen3_moe", "gemma3", "gemma3_text")
    norms = core.layers * ((4 if four_norms else 2) * core.hidden + (2 * core.head_dim if qk_norm else 0)) + core.hidden
    return ModelShape(
        **vars(core),
        sliding_window=window,
        sliding_layers=sliding_layers,
        model_type=kind,
        value_dim=core.head_dim,
        ffn=ffn,
        gated=True,
        tied=config.flag("tie_word_embeddings", default=gemma),
        projections=(*attention, *blocks.projections, head(core.hidden, core.vocab)),
        other_parameters=norms,
        embedding_name="embed_tokens",
        keeps_last_output=four_norms or blocks.experts > 0,
        exact=exact and not config.nested,
        experts=blocks.experts,
        experts_per_token=blocks.experts_per_token,
        expert_ffn=blocks.expert_ffn,
        shared_ffn=blocks.shared_ffn,
    )


def _phi3(config: ConfigReader) -> ModelShape:
    """Llama with q, k and v in one matrix, and gate and up in another."""
    window, sliding_layers = _sliding(config, config.number("num_hidden_layers"))
    core, ffn = _core(config), config.number("intermediate_size")
    width = (core.heads + 2 * core.kv_heads) * core.head_dim
    layer = layer_projection(core.layers)
    projections = (
        layer("qkv_proj", core.hidden, width, "input"),
        layer("o_proj", core.heads * core.head_dim, core.hidden, "output"),
        layer("gate_up_proj", core.hidden, 2 * ffn, "up"),
        layer("down_proj", ffn, core.hidden, "down"),
        head(core.hidden, core.vocab),
    )
    return ModelShape(
        **vars(core),
        sliding_window=window,
        sliding_layers=sliding_layers,
        model_type=config.model_type,
        value_dim=core.head_dim,
        ffn=ffn,
        gated=True,
        tied=config.flag("tie_word_embeddings"),
        projections=projections,
        other_parameters=(2 * core.layers + 1) * core.hidden,
        embedding_name="embed_tokens",
        keeps_last_output=config.dropout("resid_pdrop") > 0,
    )


def _plain(
    config: ConfigReader,
    core: _Core,
    ffn: int,
    projections: tuple[Projection, ...],
    *,
    tied: bool,
    other: int,
    embedding: str,
    parallel: bool = False,
) -> ModelShape:
    """A model from before Llama: LayerNorm, no gate, usually no grouped-query attention."""
    return ModelShape(
        **vars(core),
        model_type=config.model_type,
        value_dim=core.head_dim,
        ffn=ffn,
        gated=False,
        tied=config.flag("tie_word_embeddings", default=tied),
        projections=projections,
        other_parameters=other,
        embedding_name=embedding,
        parallel_residual=parallel,
        keeps_last_output=config.dropout("resid_pdrop", "hidden_dropout", "dropout", default=_DROPOUT.get(config.model_type, 0.0)) > 0,
    )


_DROPOUT = {"gpt2": 0.1, "opt": 0.1}


def _gpt2(config: ConfigReader) -> ModelShape:
    core = _core(config)
    ffn = config.number("n_inner", default=4 * core.hidden)
    layer = layer_projection(core.layers, bias=True)
    projections = (
        layer("c_attn", core.hidden, 3 * core.hidden, "input"),
        layer("c_proj", core.hidden, core.hidden, "output"),
        layer("c_fc", core.hidden, ffn, "up"),
        layer("c_proj", ffn, core.hidden, "down"),
        head(core.hidden, core.vocab),
    )
    other = core.max_positions * core.hidden + (2 * core.layers + 1) * 2 * core.hidden
    return _plain(config, core, ffn, projections, tied=True, other=other, embedding="wte")


def _gpt_neox(config: ConfigReader) -> ModelShape:
    core, ffn = _core(config), config.number("intermediate_size")
    attention, mlp = (
        layer_projection(core.layers, bias=config.flag("attention_bias", default=True)),
        layer_projection(core.layers, bias=True),
    )
    projections = (
        attention("query_key_value", core.hidden, 3 * core.hidden, "input"),
        attention("dense", core.hidden, core.hidden, "output"),
        mlp("dense_h_to_4h", core.hidden, ffn, "up"),
        mlp("dense_4h_to_h", ffn, core.hidden, "down"),
        head(core.hidden, core.vocab),
    )
    other = (2 * core.layers + 1) * 2 * core.hidden
    parallel = config.flag("use_parallel_residual", default=True)
    return _plain(config, core, ffn, projections, tied=False, other=other, embedding="embed_in", parallel=parallel)


def _phi(config: ConfigReader) -> ModelShape:
    core, ffn = _core(config), config.number("intermediate_size")
    attention = self_attention(
        core.layers, core.hidden, core.heads, core.kv_heads, core.head_dim, qkv_bias=True, output_bias=True, output_name="dense"
    )
    layer = layer_projection(core.layers, bias=True)
    blocks = (layer("fc1", core.hidden, ffn, "up"), layer("fc2", ffn, core.hidden, "down"))
    qk_norm = 4 * core.head_dim if config.flag("qk_layernorm") else 0
    other = core.layers * (2 * core.hidden + qk_norm) + 2 * core.hidden
    projections = (*attention, *blocks, head(core.hidden, core.vocab, bias=True))
    return _plain(config, core, ffn, projections, tied=False, other=other, embedding="embed_tokens", parallel=True)


def _opt(config: ConfigReader) -> ModelShape:
    core, ffn = _core(config), config.number("ffn_dim")
    if config.number("word_embed_proj_dim", default=core.hidden) != core.hidden or not config.flag("do_layer_norm_before", default=True):
        raise BadInput("OPT with a projected embedding or norms after its layers (opt-350m) is not supported", "use another size of OPT")
    bias = config.flag("enable_bias", default=True)
    attention = self_attention(
        core.layers, core.hidden, core.heads, core.heads, core.head_dim, qkv_bias=bias, output_bias=bias, output_name="out_proj"
    )
    layer = layer_projection(core.layers, bias=bias)
    blocks = (layer("fc1", core.hidden, ffn, "up"), layer("fc2", ffn, core.hidden, "down"))
    norms = (2 * core.layers + 1) * 2 * core.hidden if config.flag("layer_norm_elementwise_affine", default=True) else 0
    # OPT's position table starts at 2 (its padding offset).
    other = (core.max_positions + 2) * core.hidden + norms
    return _plain(config, core, ffn, (*attention, *blocks, head(core.hidden, core.vocab)), tied=True, other=other, embedding="embed_tokens")


def _deepseek(config: ConfigReader) -> ModelShape:
    """Multi-head latent attention (DeepSeek-V2, 2024): q and kv pass through narrow latents; experts after the first dense layers."""
    layers, hidden, heads = config.number("num_hidden_layers"), config.number("hidden_size"), config.number("num_attention_heads")
    nope, rope = config.number("qk_nope_head_dim", default=128), config.number("qk_rope_head_dim", default=64)
    value, latent = config.number("v_head_dim", default=128), config.number("kv_lora_rank", default=512)
    q_latent = config.value("q_lora_rank", default=None)
    bias = config.flag("attention_bias")
    reads, widens = layer_projection(layers, bias=bias), layer_projection(layers)
    queries = (
        (widens("q_proj", hidden, heads * (nope + rope), "input"),)
        if q_latent is None
        else (reads("q_a_proj", hidden, q_latent, "input"), widens("q_b_proj", q_latent, heads * (nope + rope), "latent"))
    )
    attention = (
        *queries,
        reads("kv_a_proj_with_mqa", hidden, latent + rope, "input"),
        widens("kv_b_proj", latent, heads * (nope + value), "latent"),
        reads("o_proj", heads * value, hidden, "output"),
    )
    blocks = expert_layers(config, layers, hidden)
    vocab = config.number("vocab_size")
    return ModelShape(
        model_type=config.model_type,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=nope + rope,
        value_dim=value,
        ffn=config.number("intermediate_size"),
        vocab=vocab,
        max_positions=config.number("max_position_embeddings", default=2048),
        gated=True,
        tied=config.flag("tie_word_embeddings"),
        projections=(*attention, *blocks.projections, head(hidden, vocab)),
        other_parameters=layers * (2 * hidden + latent + (q_latent or 0)) + hidden,
        embedding_name="embed_tokens",
        keeps_last_output=True,
        experts=blocks.experts,
        experts_per_token=blocks.experts_per_token,
        expert_ffn=blocks.expert_ffn,
        shared_ffn=blocks.shared_ffn,
    )


_LLAMA_LIKE = (
    *("llama", "mistral", "granite", "smollm3"),
    *("qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gemma3_text"),
    *("mixtral", "qwen2_moe", "qwen3_moe"),
)
_FAMILIES: dict[str, Callable[[ConfigReader], ModelShape]] = {
    **dict.fromkeys(_LLAMA_LIKE, _llama_like),
    "phi3": _phi3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "phi": _phi,
    "opt": _opt,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
}
