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
"""Weights, and numbers in them, whose gradients are compared where memory does not hold the gradients of all."""
_SHARE = 0.125
"""Of the free memory, which all gradients may take."""
_COUNTED = "ds_z3_leaf_module"
"""An attribute of experts that ZeRO 3 gathers together. DeepSpeed counts gradients in their backward pass, which torch does not allow while
gradients are asked for.
"""
_NOISE = {False: 1e-4, True: 5e-2}
"""Largest relative change of a gradient that is rounding, in fp32 and in 16 bits: kernels of GPUs add in any order."""
_SUMS = 61
"""Sums of a gradient, of every 61st number from another place. Beside the norm, they stand for it: two sets of all gradients need twice the
memory of the first step.
"""


def refuse_changed_gradients(model: nn.Module, loss_of: Callable[[], torch.Tensor], *, half: bool, memory_bytes: float) -> int:
    """Raises BadInput if recomputation changes a gradient of a short row. Returns the number of weights that were compared.

    `loss_of`: the loss of that row, the same at each call; by the engine if ZeRO 3 has cut the weights. `half`: the model computes in 16
    bits. `memory_bytes`: that are free, the same number on all ranks. All weights to train are compared if it holds their gradients, else
    some of them, from the first layer to the last; none of a model whose experts ZeRO 3 gathers together. Collective with ZeRO 3.
    """
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    if any(hasattr(weight, _COUNTED) for weight in model.parameters()):
        return 0
    fits = sum(_numbers_of(weight) * weight.element_size() for _, weight in trained) <= _SHARE * memory_bytes
    chosen = trained if fits else _some_of(trained)
    weights = [weight for _, weight in chosen]
    with _without_recomputation(model):
        expected = _sketches(loss_of(), weights)
    found = _sketches(loss_of(), weights)
    for (name, _), there, here in zip(chosen, expected, found, strict=True):
        change = _change(there, here)
        if not change <= _NOISE[half]:
            raise BadInput(
                f"recomputation changes the gradient of {some([name])} by {change:.2g} of its size",
                "set strategy.recompute to false, and report this with the versions of the packages",
            )
    return len(chosen)


def _numbers_of(weight: torch.Tensor) -> int:
    return int(getattr(weight, "ds_numel", weight.numel()))


def _some_of(trained: Sequence[tuple[str, nn.Parameter]]) -> list[tuple[str, nn.Parameter]]:
    """Weights from all layers. The stride is odd: adapters come in pairs, and one of each pair has no gradient at the start."""
    stride = -(-len(trained) // _WEIGHTS) // 2 * 2 + 1
    chosen: list[tuple[str, nn.Parameter]] = []
    numbers = 0
    for name, weight in trained[::stride]:
        numbers += _numbers_of(weight)
        if numbers <= _NUMBERS or not chosen:
            chosen.append((name, weight))
    return chosen


def _sketches(loss: torch.Tensor, weights: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """The norm of each gradient, and sums of its numbers: fp64 (1 + _SUMS). No engine hears of the gradients."""
    return [None if each is None else _sketch(each) for each in torch.autograd.grad(loss, list(weights), allow_unused=True)]


def _sketch(gradient: torch.Tensor) -> torch.Tensor:
    flat = gradient.reshape(-1).float()
    padded = nn.functional.pad(flat, (0, -flat.numel() % _SUMS)).reshape(-1, _SUMS)
    return torch.cat([flat.norm(dtype=torch.float64)[None], padded.sum(dim=0, dtype=torch.float64)])


def _change(expected: torch.Tensor | None, found: torch.Tensor | None) -> float:
    """The change of the norm or of the sums, over the norm."""
    if expected is None or found is None:
        return 0.0 if expected is found else float("inf")
    size, apart = float(expected[0]), (found - expected).abs()
    change = max(float(apart[0]), float(apart[1:].norm()))
    return change / size if size else change


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
