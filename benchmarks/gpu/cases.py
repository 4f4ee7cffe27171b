"""What the check of a GPU trains: a table of cases, each with the layout, the tolerances, and what a miss means. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tuneyard.api import Method
from tuneyard.catalog import ModelShape
from tuneyard.catalog.built import model_shape_of
from tuneyard.planning.setup import Layout

REHEARSAL = os.environ.get("TUNEYARD_CHECK_CPU") == "1"
"""Everything on a CPU, with tiny shapes: a test of the check itself."""
LENGTH = 64 if REHEARSAL else 2048
STEPS = 4 if REHEARSAL else 8

_COMMON = {
    "model_type": "llama",
    "hidden_act": "silu",
    "max_position_embeddings": LENGTH,
    "tie_word_embeddings": False,
    "eos_token_id": 0,
    "bos_token_id": None,
    "pad_token_id": 1,
}
_HEADS = {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256}
_SHAPES: dict[str, dict[str, Any]] = {
    "1B": {**_HEADS, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16},
    "3B": {**_HEADS, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24},
    "8B": {**_HEADS, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32},
}
_TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 384,
}
_METHODS: dict[str, dict[str, Any]] = {"full": {"full": {}}, "lora": {"lora": {"rank": 16}}, "qlora": {"qlora": {"rank": 16}}}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run of a few steps over packed rows. `layout` has what differs from one rank, bf16, flash attention, micro-batch 2 and
    accumulation 2.

    `speed` and `memory`: the lowest and highest ratio of measured to predicted that is no miss.
    """

    section: str
    name: str
    shape: Literal["1B", "3B", "8B"] = "1B"
    method: Literal["full", "lora", "qlora"] = "full"
    layout: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 1
    """Samples that a row holds."""
    steps: int = STEPS
    speed: tuple[float, float] = (0.80, 1.20)
    memory: tuple[float, float] = (0.94, 1.06)
    slow: str = ""
    """What speed below the lowest ratio points at."""

    @property
    def config(self) -> dict[str, Any]:
        """The model's config.json, less what transformers fills in."""
        return {**_COMMON, **(_TINY if REHEARSAL else _SHAPES[self.shape])}

    @property
    def model_shape(self) -> ModelShape:
        return model_shape_of({**self.config, "torch_dtype": "bfloat16"})

    @property
    def method_fields(self) -> dict[str, Any]:
        return _METHODS[self.method]

    @property
    def method_of_task(self) -> Method:
        return Method.model_validate(self.method_fields)

    @property
    def plan_fields(self) -> dict[str, Any]:
        """Fields that a Plan and a Layout share."""
        fields = {"workers": 1, "zero": 0, "precision": "bf16", "attention": "flash", "micro_batch": 2, "grad_accum": 2, **self.layout}
        if REHEARSAL:
            fields |= {"liger": False, "attention": "sdpa"}  # neither Liger's nor flash attention's kernels run on a CPU
        return fields

    @property
    def planned(self) -> Layout:
        return Layout(seq_len=LENGTH, **{name: value for name, value in self.plan_fields.items() if name in Layout.__dataclass_fields__})


LIGER = {"liger": True}
FROZEN = {"liger": True, "recompute": True}
_LAUNCHES = "the GPU waits for Python, or the optimizer runs in many kernels"
_HOOKS = "ZeRO-3's hooks cost more Python than is planned"
_MATMULS = "matmuls are slower than is planned"
_SAMPLES = "variable-length attention is slower than is planned, or was not taken"
_DEQUANTIZING = "dequantizing is slower than is planned"
_HOST = "CPU Adam, or the link to the host, is slower here than is planned"
_DISK = "the disk is slower than is planned"


def _micro(rows: int) -> dict[str, int]:
    return {"micro_batch": rows, "grad_accum": 1}


def _8b(name: str, *, layout: Mapping[str, Any], slow: str, **changes: Any) -> Case:
    return Case(
        section="train-8b",
        name=name,
        shape="8B",
        layout=layout,
        slow=slow,
        **{"method": "lora", "speed": (0.85, 1.15), "steps": min(STEPS, 6), **changes},
    )


def _offload(name: str, *, layout: Mapping[str, Any], **changes: Any) -> Case:
    return Case(
        section="offload",
        name=name,
        layout={**LIGER, **layout},
        **{"steps": min(STEPS, 5), "speed": (0.60, 1.50), "slow": _HOST, **changes},
    )


CASES = (
    Case(section="train-1b", name="1B full", slow=_LAUNCHES),
    Case(section="train-1b", name="1B full, Liger", layout=LIGER, slow=_LAUNCHES),
    Case(section="train-1b", name="1B full, Liger, micro 8", layout={**LIGER, **_micro(8)}, slow=_LAUNCHES),
    Case(section="train-1b", name="1B full, ZeRO 2", layout={**LIGER, "zero": 2}, slow=_LAUNCHES),
    Case(section="train-1b", name="1B full, ZeRO 3", layout={**LIGER, "zero": 3}, speed=(0.70, 1.10), slow=_HOOKS),
    _8b("8B LoRA, Liger", layout=FROZEN, slow=_LAUNCHES),
    _8b("8B LoRA, Liger, micro 4", layout={**FROZEN, **_micro(4)}, slow=_MATMULS),
    _8b("8B LoRA, Liger, no recomputation", layout=LIGER, slow=_LAUNCHES),
    _8b("8B LoRA, Liger, 8 samples a row", layout=FROZEN, samples=8, slow=_SAMPLES),
    _8b("8B QLoRA, Liger", method="qlora", layout=FROZEN, speed=(0.80, 1.20), slow=_DEQUANTIZING),
    _offload("1B full, ZeRO 2, optimizer on the host", layout={"zero": 2, "offload_optimizer": "cpu"}),
    _offload("1B full, ZeRO 3, all on the host", layout={"zero": 3, "offload_optimizer": "cpu", "offload_parameters": "cpu"}),
    _offload(
        "1B full, ZeRO 3, all on a disk",
        layout={"zero": 3, "offload_optimizer": "nvme", "offload_parameters": "nvme"},
        steps=3,
        speed=(0.30, 3.00),
        slow=_DISK,
    ),
    _offload(
        "3B full, ZeRO 2, optimizer on the host",
        shape="3B",
        layout={"zero": 2, "offload_optimizer": "cpu", "recompute": True, **_micro(8)},
    ),
)


def last_shapes(section: str) -> set[str]:
    """Shapes that the section is the last one to train."""
    last = {case.shape: case.section for case in CASES}
    return {shape for shape, name in last.items() if name == section}


def cases_of(section: str) -> list[Case]:
    return [case for case in CASES if case.section == section]
