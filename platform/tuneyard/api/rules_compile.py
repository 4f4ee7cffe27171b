"""Rules about compiled layers: what stands beside torch.compile of each decoder layer."""

from __future__ import annotations

from tuneyard.api.rules_case import Case, Rule

_PLAIN = {"train.strategy.compile": "none"}
_LAYERS = {"train.strategy.compile": "layers"}


def _takes_zero_3(case: Case) -> bool:
    """Whether the task asks for ZeRO 3, or for what only ZeRO 3 has."""
    asked = case.strategy
    needs = asked.offload.parameters != "none" or asked.offload.optimizer == "nvme" or asked.shard_within == "host"
    return asked.zero == 3 or (asked.zero == "auto" and needs)


COMPILE_RULES = (
    Rule(
        id="compile-zero-3",
        kind="train",
        refused="compiled layers under ZeRO 3",
        why="ZeRO 3 gathers weights inside each layer, at every module, and there compilation would end",
        field="train.strategy.compile",
        breaks=lambda c: c.strategy.compile == "layers" and _takes_zero_3(c),
        nearest=lambda c: (_PLAIN, *(({"train.strategy.zero": 2},) if c.strategy.zero == 3 else ())),
        example={**_LAYERS, "train.strategy.zero": 3},
    ),
    Rule(
        id="compile-tensor-parallel",
        kind="train",
        refused="compiled layers under tensor parallelism",
        why="ranks exchange sums inside each layer, by hooks that are not compiled in this version",
        field="train.strategy.compile",
        breaks=lambda c: c.strategy.compile == "layers" and c.strategy.tensor_parallel > 1,
        nearest=lambda _: (_PLAIN, {"train.strategy.tensorParallel": 1}),
        example={**_LAYERS, "train.strategy.tensorParallel": 2, "resources.workers": 2},
    ),
    Rule(
        id="compile-context-parallel",
        kind="train",
        refused="compiled layers under context parallelism",
        why="ranks exchange tokens for heads inside each layer, by hooks that are not compiled in this version",
        field="train.strategy.compile",
        breaks=lambda c: c.strategy.compile == "layers" and c.strategy.context_parallel > 1,
        nearest=lambda _: (_PLAIN, {"train.strategy.contextParallel": 1}),
        example={**_LAYERS, "train.strategy.contextParallel": 2, "resources.workers": 2},
    ),
)
