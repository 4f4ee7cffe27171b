"""Gradients with recomputation are those without.

A block that is computed again in the backward pass must give what it gave before. A library that cuts off what leaves a block beside its
output, or a block that keeps state from pass to pass, changes gradients in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from tuneyard.api import BadInput
from tuneyard.training.proofs.reach import some

_WEIGHTS = 63
_NUMBERS = 64_000_000
"""Most weights, and numbers in them, whose gradients are compared."""
_NOISE = {False: 1e-4, True: 5e-2}
"""Largest relative change of a gradient that is rounding, in fp32 and in 16 bits: kernels of GPUs add in any order."""


def refuse_changed_gradients(model: nn.Module, loss_of: Callable[[], torch.Tensor], *, half: bool) -> None:
    """Raises BadInput if recomputation changes a gradient of a short row. `loss_of`: the loss of that row, the same at each call.
    `half`: the model computes in 16 bits.

    Weights must be whole. A few weights to train are compared, from the first layer to the last.
    """
    chosen = _chosen([(name, weight) for name, weight in model.named_parameters() if weight.requires_grad])
    weights = [weight for _, weight in chosen]
    with _without_recomputation(model):
        expected = torch.autograd.grad(loss_of(), weights, allow_unused=True)
    found = torch.autograd.grad(loss_of(), weights, allow_unused=True)
    for (name, _), there, here in zip(chosen, expected, found, strict=True):
        change = _change(there, here)
        if change > _NOISE[half]:
            raise BadInput(
                f"recomputation changes the gradient of {some([name])} by {change:.2g} of its size",
                "set strategy.recompute to false, and report this with the versions of the packages",
            )


def _chosen(trained: Sequence[tuple[str, nn.Parameter]]) -> list[tuple[str, nn.Parameter]]:
    """Weights from all layers. The stride is odd: adapters come in pairs, and one of each pair has no gradient at the start."""
    stride = -(-len(trained) // _WEIGHTS) // 2 * 2 + 1
    chosen: list[tuple[str, nn.Parameter]] = []
    numbers = 0
    for name, weight in trained[::stride]:
        numbers += weight.numel()
        if numbers <= _NUMBERS or not chosen:
            chosen.append((name, weight))
    return chosen


def _change(expected: torch.Tensor | None, found: torch.Tensor | None) -> float:
    if expected is None or found is None:
        return 0.0 if expected is found else float("inf")
    size = float(expected.float().norm())
    return float((found.float() - expected.float()).norm()) / size if size else float(found.float().norm())


@contextmanager
def _without_recomputation(model: nn.Module) -> Iterator[None]:
    """transformers' layers recompute where their flag is set."""
    layers = [module for module in model.modules() if getattr(module, "gradient_checkpointing", False)]
    for layer in layers:
        layer.gradient_checkpointing = False
    try:
        yield
    finally:
        for layer in layers:
            layer.gradient_checkpointing = True
