"""Setups for the tests of memory and speed: readable, and right unless a test says otherwise."""

from __future__ import annotations

from typing import Any

from tuneyard.api import Method
from tuneyard.catalog import Gpu, ModelShape, gpu, shape_from_config
from tuneyard.planning import Layout, Setup

LLAMA_8B = shape_from_config(
    {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
    | {"intermediate_size": 14336, "vocab_size": 128256}
)
LLAMA_70B = shape_from_config(
    {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8}
    | {"intermediate_size": 28672, "vocab_size": 32000, "max_position_embeddings": 4096}
)


def setup(
    sku: str | Gpu = "h100-80gb",
    *,
    shape: ModelShape = LLAMA_8B,
    method: str = "full",
    objective: Any = "sft",
    optimizer: str = "adamw",
    gpus_per_node: int = 8,
    network_gb_s: float | None = None,
    **layout: Any,
) -> Setup:
    values = {"workers": 8, "zero": 1, "precision": "bf16", "attention": "flash", "micro_batch": 2, "seq_len": 2048, "grad_accum": 4}
    return Setup(
        shape=shape,
        gpu=gpu(sku) if isinstance(sku, str) else sku,
        layout=Layout(**{**values, **layout}),
        method=Method.model_validate({method: {}}),
        objective=objective,
        optimizer=optimizer,
        gpus_per_node=gpus_per_node,
        network_gb_s=network_gb_s,
    )
