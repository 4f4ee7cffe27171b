"""Context parallelism in training: the trainer's parts that change if ranks hold slices of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from transformers.loss.loss_utils import ForCausalLMLoss

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by
from tuneyard.parallel.context import ContextParallel, row_slice, targets

Batch = dict[str, Any]
_NOISE = {torch.float32: 1e-5, torch.float64: 1e-5}
"""Largest change that counts as noise, relative to the largest logit, as in `proofs.sight`."""
_HALF_NOISE = 3e-2


@dataclass(frozen=True)
class SliceCollator:
    """Turns the micro-batches of `whole` into the slice of this rank."""

    whole: Callable[[Any], Batch]
    index: int
    ranks: int
    pad_token_id: int

    def __call__(self, rows: Any) -> Batch:
        return row_slice(self.whole(rows), self.index, self.ranks, self.pad_token_id)


def slice_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    """Loss of the tokens of a slice. `labels`: from `row_slice`. `num_items_in_batch`: tokens that count in the global batch; None: in this
    slice, as in evaluation.
    """
    logits = outputs.logits
    loss: torch.Tensor = ForCausalLMLoss(logits, None, logits.shape[-1], num_items_in_batch, shift_labels=targets(labels))
    return loss


def whole_router_loss(model: Any, router_logits: tuple[torch.Tensor, ...], mask: torch.Tensor, context: ContextParallel) -> torch.Tensor:
    """The router loss of whole rows, which spreads tokens over experts. It is no sum over tokens, so slices cannot compute it separately.

    `router_logits`: per layer (rows * tokens of a slice, experts). `mask` (rows, tokens of the row): 0 where a token does not count. Raises
    BadInput for a model whose loss is not transformers' load_balancing_loss_func.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    balance = getattr(sys.modules[type(base).__module__], "load_balancing_loss_func", None)
    if balance is None or not hasattr(base, "num_experts") or not hasattr(base, "num_experts_per_tok"):
        raise BadInput(
            f"the router loss of a {base.config.model_type} model cannot be split along rows",
            "set train.routerLoss to 0, or strategy.contextParallel to 1",
        )
    rows = mask.shape[0]
    whole = tuple(context.gathered(layer.reshape(rows, -1, layer.shape[-1])).flatten(0, 1) for layer in router_logits)
    loss: torch.Tensor = balance(whole, base.num_experts, base.num_experts_per_tok, mask)
    return loss


def refuse_unsplit(
    forward: Callable[[Batch], torch.Tensor], context: ContextParallel, vocabulary: int, longest: int, *, packed: bool
) -> None:
    """Raises BadInput, on every rank, for a model with other results on slices than on whole rows.

    `forward`: keyword arguments of the model -> logits. Tokens may interact only in attention. A state that is carried along the row, a
    convolution, or a position bias that a slice computes by itself changes the logits. So do positions that are scaled by the longest one:
    test rows have positions up to `longest` - 1, the longest in the data.
    """
    worst, scale = 0.0, 0.0
    for whole in _rows(vocabulary, longest, context.ranks, packed=packed):
        try:
            # Slices run first: some rotary embeddings keep the longest position that they have met.
            found = split_logits(forward, context, whole)
        except (TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            said = said_by(error)
            raise BadInput(
                f"the model cannot be split along its rows: its forward pass fails on a slice: {said}",
                "set strategy.contextParallel to 1",
            ) from error
        with context.whole_rows():
            expected = forward(whole)
        scale = max(scale, float(expected.float().abs().max()))
        noise = _NOISE.get(expected.dtype, _HALF_NOISE) * max(float(expected.float().abs().max()), 1e-6)
        change = float((found.float() - expected.float()).abs().max())
        worst = max(worst, change if not change <= noise else 0.0)
    agreed = torch.tensor([worst, scale], dtype=torch.float64, device=expected.device)
    dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
    if agreed[0] or not torch.isfinite(agreed).all():
        raise BadInput(
            f"the model cannot be split along its rows: logits of slices differ by {float(agreed[0]):.2g} (of {float(agreed[1]):.2g}) from "
            "those of whole rows, so tokens meet outside of attention, or positions depend on the longest one",
            "set strategy.contextParallel to 1",
        )


def split_logits(forward: Callable[[Batch], torch.Tensor], context: ContextParallel, whole: Batch) -> torch.Tensor:
    """Logits (rows, tokens, vocabulary) of whole rows, computed in slices by the ranks of the context group."""
    sliced = row_slice(whole, context.index, context.ranks)
    return context.gathered(forward(sliced))[:, : whole["input_ids"].shape[1]]


def _rows(vocabulary: int, longest: int, ranks: int, *, packed: bool) -> Iterator[Batch]:
    """Test rows whose length the ranks do not divide: one sample with positions up to each of several lengths, and two packed samples. A
    model may treat some lengths specially; for each of them, only some slices of a test row reach it.
    """
    length = max(2, min(4 * ranks + 1, longest))
    ids = torch.arange(length)[None, :] * 7 % vocabulary
    most = length
    while True:
        spread = torch.linspace(0, most - 1, length).long()[None, :]
        yield {"input_ids": ids, "position_ids": spread, "attention_mask": torch.ones_like(ids)}
        if most >= longest:
            break
        most = min(longest, most * ranks)
    if packed:
        half = length // 2
        yield {"input_ids": ids, "position_ids": torch.tensor([[*range(half), *range(length - half)]])}
