"""Feed-forward layers of a mixture of experts: router, routed experts, shared experts, and the dense layers between them."""

from __future__ import annotations

from dataclasses import dataclass

from tuneyard.catalog.config_reader import ConfigReader
from tuneyard.catalog.projections import feed_forward, layer_projection
from tuneyard.catalog.shapes import Projection, Stage


@dataclass(frozen=True, kw_only=True)
class FeedForward:
    """The feed-forward part of all layers, and the expert fields of its ModelShape."""

    projections: tuple[Projection, ...]
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0


def expert_layers(config: ConfigReader, layers: int, hidden: int) -> FeedForward:
    """The feed-forward part of a model with experts (Mixtral, Qwen-MoE, DeepSeek)."""
    experts = config.number("num_local_experts", "num_experts", "n_routed_experts")
    chosen = config.number("num_experts_per_tok")
    ffn = config.number("moe_intermediate_size", "intermediate_size")
    dense = _dense_layers(config, layers)
    sparse = layers - len(dense)
    first_is_sparse = 0 not in dense
    shared, shared_ffn = _shared_experts(config, sparse, hidden, ffn, first=first_is_sparse)
    routed = _routed_experts(config.model_type, sparse, hidden, ffn, experts, chosen, first=first_is_sparse) if sparse else ()
    # PEFT maps the names of a dense block to the fused experts, if it can adapt those: then it adapts no dense block.
    between = feed_forward(
        len(dense), hidden, config.number("intermediate_size"), first=not first_is_sparse, adaptable=config.model_type == "qwen2_moe"
    )
    return FeedForward(
        projections=(*(between if dense else ()), *routed, *(shared if sparse else ())),
        experts=experts,
        experts_per_token=chosen,
        expert_ffn=ffn,
        shared_ffn=shared_ffn,
    )


def _dense_layers(config: ConfigReader, layers: int) -> set[int]:
    """Indices of the layers without experts."""
    step = config.number("decoder_sparse_step", default=1)
    named = set(config.value("mlp_only_layers", default=()))
    leading = config.number("first_k_dense_replace", default=0)
    return {index for index in range(layers) if index < leading or index in named or (index + 1) % step}


def _routed_experts(
    model_type: str, layers: int, hidden: int, ffn: int, experts: int, chosen: int, *, first: bool
) -> tuple[Projection, ...]:
    mixtral = model_type == "mixtral"
    # PEFT maps expert names onto fused tensors for Mixtral and for models that it treats as Qwen2-like, but not for Qwen2-MoE itself.
    adaptable = model_type != "qwen2_moe"
    up_targets, down_targets = (("w1", "w3"), ("w2",)) if mixtral else (("gate_proj", "up_proj"), ("down_proj",))

    def stack(name: str, inputs: int, outputs: int, stage: Stage, targets: tuple[str, ...], rank_factor: int = 1) -> Projection:
        routed = stage != "router"
        return Projection(
            name=name,
            inputs=inputs,
            outputs=outputs,
            stage=stage,
            layers=layers,
            copies=experts if routed else 1,
            active=chosen if routed else 1,
            targets=targets if adaptable else (),
            rank_factor=rank_factor,
            stacked=True,
            in_first_layer=first,
        )

    return (
        stack("gate", hidden, experts, "router", ("gate",)),
        stack("gate_up_proj", hidden, 2 * ffn, "up", up_targets, rank_factor=2),
        stack("down_proj", ffn, hidden, "down", down_targets),
    )


def _shared_experts(config: ConfigReader, layers: int, hidden: int, ffn: int, *, first: bool) -> tuple[tuple[Projection, ...], int]:
    """Experts that every token passes through, and the sum of their inner widths."""
    if config.model_type == "qwen2_moe":
        width = config.number("shared_expert_intermediate_size", default=5632)
        gate = layer_projection(layers, first=first)("shared_expert_gate", hidden, 1, "router")
        return (*feed_forward(layers, hidden, width, first=first), gate), width
    count = config.number("n_shared_experts", default=0)
    if not count:
        return (), 0
    return feed_forward(layers, hidden, count * ffn, first=first, adaptable=False), count * ffn
