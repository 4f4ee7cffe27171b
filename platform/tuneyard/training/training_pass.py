"""Compares a model's training pass with its evaluation pass, from which its tensor-parallel plan is made.

Both passes are recorded on the meta device, without dropout, and the operations that results depend on are compared. Real numbers may
differ: a plan does not depend on them.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from tuneyard.api import BadInput
from tuneyard.parallel.plan import token_inputs
from tuneyard.parallel.recording import Event, Recording, Ref, record
from tuneyard.parallel.watcher import WithoutDropout

_REMEDY = "set strategy.tensorParallel to 1 and strategy.zero to 3, or have the model's code do the same in both modes"


def refuse_other_training_pass(model: nn.Module) -> None:
    """Raises BadInput for a transformers model whose training pass differs from the planned one. Reads no weight."""
    given = token_inputs(model)
    with WithoutDropout():
        planned, trained = (record(model, given, {}, training=training) for training in (False, True))
    name = type(model).__name__
    if trained.error is not None:
        first = (str(trained.error).splitlines() or [type(trained.error).__name__])[0]
        raise BadInput(f"the training pass of {name} cannot be recorded on the meta device: {first}", _REMEDY) from trained.error
    for before, after in zip_longest(_operations(planned), _operations(trained)):
        if before != after:
            found = after or before
            raise BadInput(
                f"{name} computes something else in training ({found[0] or 'the model'}: {found[1]}) than in the evaluation pass, "
                "from which tensorParallel is planned",
                _REMEDY,
            )


def _operations(recording: Recording) -> list[Any]:
    """(module, operation, arguments) of every event that the results depend on, in order. Layers that are dropped at random draw numbers
    that no result contains.
    """
    needed = {recording.storages[number] for number in recording.outputs}
    kept = []
    for event in reversed(recording.events):
        if event.kind in ("enter", "exit") or needed.isdisjoint(recording.storages[ref.number] for ref in event.made):
            continue
        needed |= {recording.storages[ref.number] for ref in event.read}
        if event.function is torch.ops.aten.detach.default:
            continue  # autograd's own events, in training
        kept.append((event.module, *_described(event, recording)))
    return kept[::-1]


def _described(event: Event, recording: Recording) -> tuple[str, str]:
    def plain(leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            return recording.shapes[leaf.number]
        return "real" if isinstance(leaf, float) else leaf

    inside = sorted(recording.inside.get(event.module, ())) if event.kind in ("linear", "embedding") else []
    if event.kind == "guard":
        return "a function with a backward pass of its own", ""
    return event.kind if event.function is None else str(event.function), repr((tree_map(plain, (event.arguments, event.keywords)), inside))
