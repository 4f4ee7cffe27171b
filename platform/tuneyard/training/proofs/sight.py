"""Tests of a model's attention before its first step. Which tokens a token sees depends on the attention mask, and on any state along the
row; a list of architectures would never be complete.

- Packing: two samples share a row, and the first is replaced. The logits of the second must not change. Nor may they differ from those of
  the sample alone, in rows that cross the end of a window or a chunk.
- Causality: the last token of a row is replaced. The logits before it must not change. A model that sees the token it has to predict learns
  to copy it: its loss falls, and its answers are noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tuneyard.api import BadInput
from tuneyard.training.proofs.saved import changes_of

_LENGTH = 6
LAST = _LENGTH
"""Logits that `refuse_short_sight` looks at, from the end of a row."""
_BEFORE = 3
"""Tokens of the sample before the one that is watched."""
_NOISE = {torch.float32: 1e-5, torch.float64: 1e-5}
"""Largest change that counts as noise, relative to the largest logit. Measured on random weights (cpu, 2026-11-23): 97 architectures that
keep samples apart change by at most 4e-7, and architectures that leak change by at least 4e-4.
"""
_OTHER_SHAPES = {False: 1e-3, True: 5e-2}
"""Largest relative change of a token's logits that is rounding, between rows of different lengths, in fp32 and in 16 bits. In 16 bits, a
rounding may send single tokens to other experts: the median over the tokens counts.
"""
_HALF_NOISE = 3e-2
"""The same in 16 bits, where experts that get other tokens add in another order."""


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


def refuse_short_sight(
    logits_of: Callable[[dict[str, Any]], torch.Tensor],
    collate: Callable[[list[Any]], dict[str, Any]],
    vocabulary: int,
    borders: Sequence[int],
    longest: int,
    *,
    half: bool,
) -> None:
    """Raises BadInput if a packed sample does not compute what it computes alone, where rows of `longest` tokens cross the end of a window
    or a chunk of attention. `borders`: their lengths. `half`: the model computes in 16 bits. Arguments as for `refuse_leaks`; the last
    logits are enough.
    """
    for border in (border for border in borders if border + LAST <= longest):
        first, second = ([i % vocabulary for i in range(length)] for length in (_BEFORE, min(longest, border + 2 * LAST) - _BEFORE))
        alone, packed = (_last_of(logits_of, collate, samples) for samples in ([second], [first, second]))
        changes = changes_of(packed, alone)
        change = float(changes.median() if half else changes.max())
        if change > _OTHER_SHAPES[half]:
            raise BadInput(
                f"packed samples would not see all of themselves: beyond {border:,} tokens of a row, their logits change by {change:.0%}",
                f"set data.maxLength to at most {border}, or data.pack to false; flash attention on a GPU counts within samples",
            )


def borders_of(config: Any) -> list[int]:
    """Lengths of windows and chunks in a configuration: its whole numbers with such a name."""
    values = config.get_text_config().to_dict().items()
    return sorted({value for name, value in values if ("window" in name or "chunk" in name) and type(value) is int and value > 0})


def refuse_foresight(logits_of: Callable[[dict[str, Any]], torch.Tensor], vocabulary: int, length: int = _LENGTH) -> None:
    """Raises BadInput if a token sees the tokens after it, as in encoders (BERT). `length`: of the row. Arguments as for `refuse_leaks`;
    the last logits are enough.
    """
    sample, other, _ = _samples(vocabulary)
    before = [i * vocabulary // length for i in range(length - _LENGTH)]

    def before_last(ids: list[int]) -> torch.Tensor:
        row = [*before, *ids]
        inputs = {"input_ids": torch.tensor([row]), "attention_mask": torch.ones(1, len(row), dtype=torch.long)}
        return logits_of(inputs)[0, -LAST:-1]

    change, scale = _change(before_last(sample), before_last([*sample[:-1], other[-1]]))
    if change:
        raise BadInput(
            f"each token sees the tokens after it: its logits change by {change:.2g} (of {scale:.2g}) with the last token of the row",
            "train a decoder-only model; an encoder such as BERT needs is_decoder: true in its config.json",
        )


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


def _last_of(
    logits_of: Callable[[dict[str, Any]], torch.Tensor], collate: Callable[[list[Any]], dict[str, Any]], samples: Sequence[list[int]]
) -> torch.Tensor:
    """The logits of the last tokens of a packed row."""
    ids = [token for sample in samples for token in sample]
    batch = collate([{"input_ids": ids, "labels": ids, "position_ids": [at for sample in samples for at in range(len(sample))]}])
    inputs = {name: batch[name] for name in ("input_ids", "position_ids")}
    return logits_of(inputs)[0, -LAST:]
