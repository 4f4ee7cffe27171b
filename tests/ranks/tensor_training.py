"""Tasks that are trained on meshes with tensor parallelism, for tests and benchmarks: models, layouts, requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.builders.models import cpu_plan, train_request, train_task, write_tokenizer

from tuneyard.training import TrainRequest

GLOBAL_BATCH = 8
ONE: dict[str, Any] = {"workers": 1}
METHODS: dict[str, dict[str, Any]] = {
    "full": {},
    # Adam hides a norm that is wrong by a factor; plain steps of clipped gradients do not.
    "clipped": {"optimizer": {"name": "sgd", "learningRate": 5.0, "maxGradNorm": 0.05}},
    "lora": {"method": {"lora": {"rank": 4, "dropout": 0.0}}, "optimizer": {"learningRate": 1e-2}},
}
LEGS: list[dict[str, Any]] = [
    ONE,
    {"workers": 2, "tensor_parallel": 2, "zero": 0},
    {"workers": 4, "tensor_parallel": 2, "zero": 2},
    {"workers": 4, "tensor_parallel": 4, "zero": 1},
    {"workers": 2, "zero": 3},
    {"workers": 4, "tensor_parallel": 2, "zero": 0, "sequence_parallel": True},
]
"""A run is handed from each to the next."""


def write_any_model(folder: Path, kind: str, **changes: Any) -> Path:
    """A model of two layers of any causal type of transformers, and its tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM, set_seed

    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
    tokens = {"vocab_size": 388, "eos_token_id": 0, "bos_token_id": None, "pad_token_id": 1, "max_position_embeddings": 256}
    set_seed(7)
    AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**shape, **tokens, **changes})).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def mesh_request(
    folder: Path, model: Path, text: Path, *, steps: int, task: dict[str, Any] | None = None, refused: bool = False, **plan: Any
) -> TrainRequest:
    """A clm task of `steps` steps over the mesh of `plan`; the global batch is the same on each. `refused`: by the planner too."""
    replicas = plan["workers"] // plan.get("tensor_parallel", 1)
    fields = {"batch": {"global": GLOBAL_BATCH}, "steps": steps, "checkpoint": {"everySteps": 2, "keep": 9}, **(task or {})}
    micro = plan.pop("micro_batch", 2)
    layout = cpu_plan(**{"micro_batch": micro, "grad_accum": GLOBAL_BATCH // (micro * replicas), **plan})
    return train_request(folder, train_task(model, text, **fields), layout, refused=refused)
