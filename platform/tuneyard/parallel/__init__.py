"""Parallel training of one model on several devices. `mesh` defines which ranks share a model, and which share rows.

An automatic tensor-parallel plan is made in these steps. No list of models and no names of modules take part.

1. `recording` records a forward pass on the meta device.
2. `propagation` carries layouts (`layout`) through it, with a rule for each operation (`operators`).
3. `replay` runs the model's own code again with each rank's shapes.
4. `search` revokes the decisions that conflict, and repeats.
5. `plan` writes the remaining decisions as styles. A user's own rules (`rules`) take modules out of their pairs.

A plan is applied to a model by `applied`: its weights are cut to plain local tensors (`shares`), and its modules get a forward (`forwards`)
with differentiable collectives (`collectives`). `adapters` finds the planned modules inside PEFT's LoRA. `loading` fills a sharded model
from files of the whole model.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneyard.parallel.applied import Shards, shard_model
    from tuneyard.parallel.loading import load_sharded
    from tuneyard.parallel.mesh import Mesh
    from tuneyard.parallel.plan import Placement, TensorParallelPlan, explain_tensor_parallel, tensor_parallel_plan
    from tuneyard.parallel.rules import CutRule, wishes_of
    from tuneyard.parallel.shares import Box, Share
    from tuneyard.parallel.vocabulary import VocabularyParts, keep_logits_sharded, vocabulary_parallel_loss, vocabulary_parts, whole_logits

_AT = {
    "load_sharded": "loading",
    "Mesh": "mesh",
    **dict.fromkeys(("Shards", "shard_model"), "applied"),
    **dict.fromkeys(("Placement", "TensorParallelPlan", "explain_tensor_parallel", "tensor_parallel_plan"), "plan"),
    **dict.fromkeys(("CutRule", "wishes_of"), "rules"),
    **dict.fromkeys(("Box", "Share"), "shares"),
    **dict.fromkeys(
        ("VocabularyParts", "keep_logits_sharded", "vocabulary_parallel_loss", "vocabulary_parts", "whole_logits"), "vocabulary"
    ),
}
__all__ = [
    "Box",
    "CutRule",
    "Mesh",
    "Placement",
    "Shards",
    "Share",
    "TensorParallelPlan",
    "VocabularyParts",
    "explain_tensor_parallel",
    "keep_logits_sharded",
    "load_sharded",
    "shard_model",
    "tensor_parallel_plan",
    "vocabulary_parallel_loss",
    "vocabulary_parts",
    "whole_logits",
    "wishes_of",
]


def __getattr__(name: str) -> Any:
    if name not in _AT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tuneyard.parallel.{_AT[name]}"), name)
