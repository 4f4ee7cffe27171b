"""Context parallelism in training: what of the trainer's work changes where ranks hold slices of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from transformers.loss.loss_utils import ForCausalLMLoss

from tuneyard.api import BadInput
from tuneyard.parallel.context import ContextParallel, row_slice, targets

Batch = dict[str, Any]
_NOISE = {torch.float32: 1e-5, torch.float64: 1e-5}
"""Relative to the largest logit, as in `probes`."""
_HALF_NOISE = 3e-2


@dataclass(frozen=True)
class SliceCollator:
    """Micro-batches as `whole` makes them -> the slice of this rank."""

    whole: Callable[[Any], Batch]
    index: int
    ranks: int
    pad_token_id: int

    def __call__(self, rows: Any) -> Batch:
        return row_slice(self.whole(rows), self.index, self.ranks, self.pad_token_id)


def slice_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    """Loss of the tokens of a slice. `labels`: as `row_slice` makes them. `num_items_in_batch`: tokens that count in the global batch;
    None: in this slice, as in evaluation."""
    logits = outputs.logits
    loss: torch.Tensor = ForCausalLMLoss(logits, None, logits.shape[-1], num_items_in_batch, shift_labels=targets(labels))
    return loss


def whole_router_loss(model: Any, router_logits: tuple[torch.Tensor, ...], mask: torch.Tensor, context: ContextParallel) -> torch.Tensor:
    """The loss that spreads tokens over experts, of whole rows: it is no sum over tokens, so slices cannot each have their own.

    `router_logits`: per layer (rows * tokens of a slice, experts). `mask` (rows, tokens of the row): 0 where a token does not count.
    Raises BadInput for a model whose loss is not transformers' load_balancing_loss_func.
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
    """Raises BadInput, on every rank, for a model that computes something else on slices than on whole rows.

    `forward`: keyword arguments of the model -> logits. Tokens may meet in attention alone: a state that is carried along the row, a
    convolution or a bias by position that a slice makes for itself change the logits. So do positions that are scaled by the longest
    one: rows are tried with positions up to `longest` - 1, the longest that the data have.
    """
    worst, scale = 0.0, 0.0
    for whole in _rows(vocabulary, longest, context.ranks, packed=packed):
        try:
            # Slices go first: some rotary embeddings keep the longest position that they have met.
            found = split_logits(forward, context, whole)
        except (TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            said = (str(error) or repr(error)).splitlines()[0]
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
    """Logits (rows, tokens, vocabulary) of whole rows, which the ranks of the context group compute in slices."""
    sliced = row_slice(whole, context.index, context.ranks)
    return context.gathered(forward(sliced))[:, : whole["input_ids"].shape[1]]


def _rows(vocabulary: int, longest: int, ranks: int, *, packed: bool) -> Iterator[Batch]:
    """Rows whose length the ranks do not divide: one sample, with positions up to each of several lengths, so that for each length that a
    model may treat specially there are rows that reach it in some slices only; and two packed samples."""
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
