"""Rules about tensor parallelism in training: settings that do not work with a model cut over several ranks.

Facts were read from the sources of DeepSpeed 0.19, PEFT 0.21, Liger kernels 0.8 and torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tuneyard.api.rules_case import Case, Rule

WHOLE_STATE_OPTIMIZERS = ("adafactor", "adamw-8bit")
_ONE: Mapping[str, Any] = {"train.strategy.tensorParallel": 1}
_EXAMPLE: Mapping[str, Any] = {"train.strategy.tensorParallel": 2, "resources.workers": 2}


def _cut(breaks: Callable[[Case], bool]) -> Callable[[Case], bool]:
    """Restricts `breaks` to tasks whose model is cut over tensor-parallel ranks."""
    return lambda case: case.strategy.tensor_parallel > 1 and breaks(case)


TENSOR_RULES = (
    Rule(
        id="tensor-parallel-zero-3",
        kind="train",
        refused="tensor parallelism under ZeRO-3",
        why="both cut the same weights, and shards of shards in a DeepSpeed checkpoint have no known place in the whole weights",
        field="train.strategy.zero",
        breaks=_cut(lambda c: c.strategy.zero == 3 and not _offloads(c)),
        nearest=lambda _: ({"train.strategy.zero": 2}, _ONE),
        example={**_EXAMPLE, "train.strategy.zero": 3},
    ),
    Rule(
        id="tensor-parallel-offload",
        kind="train",
        refused="offloading under tensor parallelism",
        why="it has not been shown to give the numbers of one device",
        field="train.strategy.offload",
        breaks=_cut(lambda c: _offloads(c)),
        nearest=lambda _: (
            {"train.strategy.offload": None, "train.strategy.zero": 2},
            _ONE,
        ),
        example={**_EXAMPLE, "train.strategy.offload": {"optimizer": "cpu"}, "train.strategy.zero": 2},
    ),
    Rule(
        id="tensor-parallel-method",
        kind="train",
        refused="qlora and dora under tensor parallelism",
        why="the packed numbers of 4-bit weights cannot be cut, and DoRA norms whole weights",
        field="train.method",
        breaks=_cut(lambda c: c.train.method.name in ("qlora", "dora")),
        nearest=lambda c: ({"train.method": {"lora": {"rank": c.train.method.adapter.rank if c.train.method.adapter else 16}}}, _ONE),
        example={**_EXAMPLE, "train.method": {"dora": {}}},
    ),
    Rule(
        id="tensor-parallel-optimizer",
        kind="train",
        refused="adafactor and adamw-8bit under tensor parallelism",
        why="their states are means over whole matrices, or over blocks of numbers, and both change with the cut",
        field="train.optimizer.name",
        breaks=_cut(lambda c: c.train.optimizer.name in WHOLE_STATE_OPTIMIZERS),
        nearest=lambda _: ({"train.optimizer.name": "adamw"}, _ONE),
        example={**_EXAMPLE, "train.optimizer.name": "adamw-8bit"},
    ),
    Rule(
        id="tensor-parallel-liger",
        kind="train",
        refused="Liger kernels under tensor parallelism",
        why="their fused loss multiplies by the head's whole weight, and each rank has a part of it",
        field="train.strategy.liger",
        breaks=_cut(lambda c: c.strategy.liger is True),
        nearest=lambda _: ({"train.strategy.liger": False}, _ONE),
        example={**_EXAMPLE, "train.strategy.liger": True},
    ),
    Rule(
        id="tensor-parallel-fp16",
        kind="train",
        refused="fp16 under tensor parallelism without ZeRO",
        why="each rank would find overflows only in its own part, and scale its loss differently; DeepSpeed synchronises the scale",
        field="train.strategy.precision",
        breaks=_cut(lambda c: _computes_in_fp16(c) and c.strategy.zero == 0),
        nearest=lambda c: (
            {"train.strategy.zero": 1},
            {"train.strategy.precision": "bf16" if c.device is None or c.device.bf16 else "fp32"},
        ),
        example={**_EXAMPLE, "train.strategy.precision": "fp16", "train.strategy.zero": 0},
    ),
)


def _computes_in_fp16(case: Case) -> bool:
    """Whether the task asks for fp16, or `auto` means fp16 on a GPU without bf16."""
    precision, device = case.strategy.precision, case.device
    return precision == "fp16" or (precision == "auto" and device is not None and not device.bf16 and not device.is_cpu)


def _offloads(case: Case) -> bool:
    return case.strategy.offload.optimizer != "none" or case.strategy.offload.parameters != "none"
