"""Builders of the projections that many families share."""

from __future__ import annotations

from typing import Protocol

from tuneyard.catalog.shapes import Projection, Stage


class _Layer(Protocol):
    def __call__(self, name: str, inputs: int, outputs: int, stage: Stage) -> Projection: ...


def layer_projection(layers: int, *, bias: bool = False, first: bool = True, adaptable: bool = True) -> _Layer:
    """A builder of plain matrices in `layers` layers. `first`: whether the first layer is among them."""

    def build(name: str, inputs: int, outputs: int, stage: Stage) -> Projection:
        return Projection(
            name=name,
            inputs=inputs,
            outputs=outputs,
            stage=stage,
            layers=layers,
            bias=bias,
            targets=(name,) if adaptable else (),
            in_first_layer=first,
        )

    return build


def self_attention(
    layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, *, qkv_bias: bool, output_bias: bool, output_name: str = "o_proj"
) -> tuple[Projection, ...]:
    """Separate query, key, value and output matrices, with grouped-query heads."""
    qkv, output = layer_projection(layers, bias=qkv_bias), layer_projection(layers, bias=output_bias)
    return (
        qkv("q_proj", hidden, heads * head_dim, "input"),
        qkv("k_proj", hidden, kv_heads * head_dim, "input"),
        qkv("v_proj", hidden, kv_heads * head_dim, "input"),
        output(output_name, heads * head_dim, hidden, "output"),
    )


def feed_forward(
    layers: int, hidden: int, ffn: int, *, bias: bool = False, first: bool = True, adaptable: bool = True
) -> tuple[Projection, ...]:
    """A gated feed-forward block (SwiGLU, GeGLU)."""
    layer = layer_projection(layers, bias=bias, first=first, adaptable=adaptable)
    return (
        layer("gate_proj", hidden, ffn, "up"),
        layer("up_proj", hidden, ffn, "up"),
        layer("down_proj", ffn, hidden, "down"),
    )


def head(hidden: int, vocab: int, *, bias: bool = False) -> Projection:
    """The LM head. `all-linear` leaves it out; the target `lm_head` adapts it."""
    return Projection(name="lm_head", inputs=hidden, outputs=vocab, stage="head", layers=1, bias=bias, targets=("lm_head",))
