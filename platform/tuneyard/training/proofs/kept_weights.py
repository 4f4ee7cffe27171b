"""Passes that only look at a model leave its weights in place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tuneyard.api import JobFailed


@contextmanager
def kept_weights(model: Any) -> Iterator[None]:
    """Around a pass that only looks (a probe, an evaluation). Raises JobFailed if it has replaced a weight: libraries prepare
    weights for inference at their first such pass, in forms that have no gradient. Weights that ZeRO 3 gathers for a pass are not watched.
    A weight that changes its dtype is the same weight: bitsandbytes casts biases to the dtype of their inputs.
    """
    watched = {name: weight for name, weight in model.named_parameters() if not hasattr(weight, "ds_id")}
    before = {name: (weight.dtype, _state(weight)) for name, weight in watched.items()}
    yield
    changed = [name for name, (dtype, state) in before.items() if watched[name].dtype == dtype and _state(watched[name]) != state]
    if changed:
        raise JobFailed(
            f"a pass that only looks at the model has replaced {len(changed)} of its weights, {changed[0]} among them",
            "report this with the versions of the packages; another method trains the model meanwhile",
        )


def _state(weight: torch.Tensor) -> tuple[int, torch.Size]:
    """Its place in memory and its shape. How often it was written says less: PEFT takes weights of experts out and puts them back."""
    return weight.data_ptr(), weight.shape
