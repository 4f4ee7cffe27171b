"""Proof, in the first step of a run, that each weight to train gets a gradient.

A fused loss that reads the head past its adapter, and an operation without a derivative, leave weights as they were, without an error. The
proof costs one Python call for each weight, once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tuneyard.api import BadInput, JobFailed
from tuneyard.training.proofs.reach import adapted_module, base_weight, lost_of, some

_NO_DERIVATIVE = "an autograd kernel was not registered"
"""What torch says, in a warning, of an operation whose backward pass returns no gradient."""


class GradientProof:
    """Marks each trainable weight of a model when a gradient reaches it. Engines (DDP, DeepSpeed) may take the gradient away afterwards."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        self._trained = {id(weight): name for name, weight in model.named_parameters() if weight.requires_grad}
        self._reached: set[int] = set()
        self._hooks = [
            weight.register_post_accumulate_grad_hook(self._mark) for weight in model.parameters() if id(weight) in self._trained
        ]

    def _mark(self, weight: torch.Tensor) -> None:
        self._reached.add(id(weight))

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Around each backward pass of the step. Raises JobFailed if it meets an operation without a derivative."""
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=f".*{_NO_DERIVATIVE}")
                yield
        except UserWarning as warning:
            operation = str(warning).partition(": ")[0]
            raise JobFailed(
                f"the backward pass ends at {operation}, which has no derivative: weights before it would not be trained",
                "use another method or attention for this model, and report this with the versions of its packages",
            ) from warning

    def finish(self, wrapped: Any, loss_of: Callable[[], torch.Tensor] | None) -> str | None:
        """After the last backward pass of the step, on each rank by itself. Returns a warning if no gradient has reached some weights.

        `wrapped`: the model inside its engine. `loss_of`: the loss of a short row, computed without the engine; None where that is
        impossible. Raises BadInput if the loss reads a weight past its adapter, and where DDP would wait for a gradient that never comes.
        """
        for hook in self._hooks:
            hook.remove()
        lost = lost_of(list(self._trained.values()), {self._trained[weight] for weight in self._reached})
        if not lost:
            return None
        told = f"no gradient reaches {len(lost)} of the {len(self._trained)} weights to train ({some(lost)})"
        past, unknown = self._read_past(lost, loss_of)
        if past:
            raise BadInput(
                f"no gradient reaches the adapters of {some(past)}: the loss reads these weights past the adapter",
                "set strategy.liger to false, or train these modules whole: saveModules instead of targets",
            )
        if isinstance(wrapped, DistributedDataParallel):
            raise BadInput(
                f"{told}, and workers without ZeRO wait for the gradient of each weight",
                "set strategy.zero to 1, or name targets without these weights",
            )
        if unknown:
            return f"{told}, and they stay as they are: the loss does not depend on them, or reads what they adapt past them"
        return f"{told}: the loss does not depend on them, and they stay as they are"

    def _read_past(self, lost: Sequence[str], loss_of: Callable[[], torch.Tensor] | None) -> tuple[list[str], bool]:
        """Modules whose adapter, or whose own copy, got no gradient, and whose base weight the loss depends on; and whether that could
        not be asked of all. Each loss depends on the head.
        """
        adapted = {name: module for name in lost if (module := adapted_module(name)) is not None}
        bases = {name: weight for name in adapted if loss_of is not None and (weight := base_weight(self._model, name)) is not None}
        gradients = _gradients(loss_of, list(bases.values())) if loss_of is not None and bases else []
        read = {adapted[name] for name, gradient in zip(bases, gradients, strict=False) if gradient is not None}
        read |= {module for module in adapted.values() if self._model.get_submodule(module) is self._head}
        return list(dict.fromkeys(module for module in adapted.values() if module in read)), len(gradients) < len(adapted)


def _gradients(loss_of: Callable[[], torch.Tensor], weights: list[torch.Tensor]) -> Sequence[torch.Tensor | None]:
    """Gradients of frozen weights; none for a class that cannot compute a loss from a few tokens alone."""
    for weight in weights:
        weight.requires_grad_(True)
    try:
        found: Sequence[torch.Tensor | None] = torch.autograd.grad(loss_of(), weights, allow_unused=True)
        return found
    except (RuntimeError, TypeError, ValueError):
        return ()
    finally:
        for weight in weights:
            weight.requires_grad_(False)
