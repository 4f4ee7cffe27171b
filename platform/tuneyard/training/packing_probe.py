"""Do packed samples see each other? Asked of the model itself, before its first step.

Two samples are packed into one row, and the first is exchanged for another one: the logits of the second must stay as they are. That
depends on how a model builds its attention mask, and on state that it carries along the row; no list of architectures is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tuneyard.api import BadInput

_LENGTH = 6
_NOISE = {torch.float32: 1e-3, torch.float64: 1e-3}
_HALF_NOISE = 3e-2
"""Of the largest logit: what other kernels and orders of addition may change, in 16 bits."""


def refuse_leaks(
    logits_of: Callable[[dict[str, Any]], torch.Tensor], collate: Callable[[list[Any]], dict[str, Any]], vocabulary: int
) -> None:
    """`logits_of`: inputs as `collate` makes them -> logits (rows, tokens, vocabulary). Raises BadInput where a packed sample sees another.

    With ZeRO-3 every rank has to call it: a forward pass gathers weights from all.
    """
    step = max(1, vocabulary // (4 * _LENGTH))
    first, other, second = ([(i * _LENGTH + j) * step % vocabulary for j in range(_LENGTH)] for i in range(3))
    before, after = (_of_second(logits_of, collate, sample, second) for sample in (first, other))
    scale = float(before.float().abs().max())
    change = float((before.float() - after.float()).abs().max())
    if change > _NOISE.get(before.dtype, _HALF_NOISE) * max(scale, 1e-6):
        raise BadInput(
            f"packed samples would see each other: the logits of one change by {change:.2g} (of {scale:.2g}) with the sample before it",
            "set data.pack to false, or train another model",
        )


def _of_second(
    logits_of: Callable[[dict[str, Any]], torch.Tensor], collate: Callable[[list[Any]], dict[str, Any]], first: list[int], second: list[int]
) -> torch.Tensor:
    ids = [*first, *second]
    batch = collate([{"input_ids": ids, "labels": ids, "position_ids": [*range(_LENGTH)] * 2}])
    inputs = {name: batch[name] for name in ("input_ids", "position_ids")}
    return logits_of(inputs)[0, _LENGTH:]
