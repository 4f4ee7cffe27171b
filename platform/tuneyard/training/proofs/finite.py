"""Weights that hold NaN or infinity before the first step. The first loss would be NaN, whatever the learning rate is."""

from __future__ import annotations

import torch
from torch import nn

from tuneyard.api import BadInput
from tuneyard.training.distributed import World, gather_objects
from tuneyard.training.proofs.reach import some


def refuse_broken_weights(model: nn.Module, uri: str, world: World) -> None:
    """Raises BadInput, on every rank, if a weight of any rank is not finite. Collective."""
    found = gather_objects(world, [name for name, weight in model.named_parameters() if not _is_finite(weight)])
    names = list(dict.fromkeys(name for each in found for name in each))
    if names:
        raise BadInput(f"{len(names)} weights of {uri} hold NaN or infinity: {some(names)}", "take another copy of the weights")


def _is_finite(weight: torch.Tensor) -> bool:
    own = getattr(weight, "ds_tensor", weight)  # with ZeRO 3, this rank's part
    return not own.is_floating_point() or bool(torch.isfinite(own).all())
