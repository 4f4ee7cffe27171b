"""Tests of a model's attention before its first step. Which tokens a token sees depends on the attention mask, and on any state along the
row; a list of architectures would never be complete.

- Packing: two samples share a row, and the first is replaced. The logits of the second must not change.
- Causality: the last token of a row is replaced. The logits before it must not change. A model that sees the token it has to predict learns
  to copy it: its loss falls, and its answers are noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tuneyard.api import BadInput, JobFailed

_LENGTH = 6
_NOISE = {torch.float32: 1e-5, torch.float64: 1e-5}
"""Largest change that counts as noise, relative to the largest logit. Measured on random weights (cpu, 2026-11-23): 97 architectures that
keep samples apart change by at most 4e-7, and architectures that leak change by at least 4e-4.
"""
_HALF_NOISE = 3e-2
"""The same in 16 bits, where experts that get other tokens add in another order."""


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


def refuse_leaks(
    logits_of: Callable[[dict[str, Any]], torch.Tensor], collate: Callable[[list[Any]], dict[str, Any]], vocabulary: int
) -> None:
    """Raises BadInput if a packed sample sees another one. `logits_of`: inputs from `collate` -> logits (rows, tokens, vocabulary).

    With ZeRO-3 every rank has to call it: a forward pass gathers weights from all ranks.
    """
    first, other, second = _samples(vocabulary)
    change, scale = _change(*(_of_second(logits_of, collate, sample, second) for sample in (first, other)))
    if change:
        raise BadInput(
            f"packed samples would see each other: the logits of one change by {change:.2g} (of {scale:.2g}) with the sample before it",
            "set data.pack to false, or train another model",
        )


def refuse_foresight(logits_of: Callable[[dict[str, Any]], torch.Tensor], vocabulary: int) -> None:
    """Raises BadInput if a token sees the tokens after it, as in encoders (BERT). Arguments as for `refuse_leaks`."""
    sample, other, _ = _samples(vocabulary)

    def before_last(ids: list[int]) -> torch.Tensor:
        inputs = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, _LENGTH, dtype=torch.long)}
        return logits_of(inputs)[0, : _LENGTH - 1]

    change, scale = _change(before_last(sample), before_last([*sample[:-1], other[-1]]))
    if change:
        raise BadInput(
            f"each token sees the tokens after it: its logits change by {change:.2g} (of {scale:.2g}) with the last token of the row",
            "train a decoder-only model; an encoder such as BERT needs is_decoder: true in its config.json",
        )


def _state(weight: torch.Tensor) -> tuple[int, torch.Size]:
    """Its place in memory and its shape. How often it was written says less: PEFT takes weights of experts out and puts them back."""
    return weight.data_ptr(), weight.shape


def _samples(vocabulary: int) -> list[list[int]]:
    step = max(1, vocabulary // (4 * _LENGTH))
    return [[(i * _LENGTH + j) * step % vocabulary for j in range(_LENGTH)] for i in range(3)]


def _change(before: torch.Tensor, after: torch.Tensor) -> tuple[float, float]:
    """The largest change of a logit (0 if it is noise), and the largest logit."""
    scale = float(before.float().abs().max())
    change = float((before.float() - after.float()).abs().max())
    return (change if change > _NOISE.get(before.dtype, _HALF_NOISE) * max(scale, 1e-6) else 0.0), scale


def _of_second(
    logits_of: Callable[[dict[str, Any]], torch.Tensor], collate: Callable[[list[Any]], dict[str, Any]], first: list[int], second: list[int]
) -> torch.Tensor:
    ids = [*first, *second]
    batch = collate([{"input_ids": ids, "labels": ids, "position_ids": [*range(_LENGTH)] * 2}])
    inputs = {name: batch[name] for name in ("input_ids", "position_ids")}
    return logits_of(inputs)[0, _LENGTH:]
