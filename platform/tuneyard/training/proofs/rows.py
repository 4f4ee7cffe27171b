"""Test, before the first step, that the rows of a micro-batch do not see each other.

Statistics over a batch, and experts that take a limited number of tokens, carry what one row says to another. The loss then depends on how
the global batch is split into micro-batches, and packed samples see those of other rows. The model is in training mode, in which such
layers work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

from tuneyard.api import BadInput
from tuneyard.training.proofs.saved import changes_of

Form = Literal["plain", "packed", "pairs"]
"""What a row of the data holds: one sample, several that the model sees in one row, or two that it sees in rows of their own."""
_SAMPLE = 6
_LENGTH = 2 * _SAMPLE
_NOISE = {False: 1e-5, True: 2e-2}
"""Largest relative change of a token's logits that is rounding, in fp32 and in 16 bits. In 16 bits, a rounding may send single tokens to
other experts: the median over the tokens counts. The shapes are equal, so that dense models compute the same bits. Mixtures of experts
change by at most 4e-7 in fp32 (cpu, 2026-11-28), and by 0 in the median of bf16.
"""


def refuse_mixed_rows(
    logits_of: Callable[[dict[str, Any]], torch.Tensor],
    collate: Callable[[list[Any]], dict[str, Any]],
    vocabulary: int,
    rows: int,
    form: Form,
    *,
    half: bool,
) -> None:
    """Raises BadInput if the logits of one row change with the others. `logits_of`: inputs from `collate` -> logits (rows, tokens,
    vocabulary), in training mode and with the same random numbers at each call. `rows`: of a micro-batch. `half`: the model computes in 16
    bits. Collective with ZeRO 3, and in tensor groups.
    """
    count = 2 * rows if form == "pairs" else rows
    if count == 1:
        return
    repeated, other = vocabulary // 3, vocabulary // 2
    # The watched rows hold the token that fills the changed ones: an expert that is full of it has no place left for theirs.
    watched = [[repeated] * 4 + [(7 * at + row) % vocabulary for at in range(_LENGTH - 4)] for row in range(count)]
    filled = [[repeated if at % _SAMPLE else other for at in range(_LENGTH)] for _ in range(count)]

    def of(given: list[list[int]], at: int) -> torch.Tensor:
        """The logits of the first row (0) or the last (-1)."""
        batch = collate(_as_data(given, form))
        named = ("input_ids", "position_ids", "attention_mask", "labels")
        logits = logits_of({name: batch[name] for name in named if name in batch})
        whole = logits[at] if logits.shape[0] == count else logits.reshape(count, -1, logits.shape[-1])[at]
        return whole[:_LENGTH].float().cpu()

    def changed(one: torch.Tensor, another: torch.Tensor) -> float:
        change = changes_of(one, another)
        return float(change.median() if half else change.max())

    for at, given in ((-1, [*filled[:-1], watched[-1]]), (0, [watched[0], *filled[1:]])):
        expected = of(watched, at)
        found = changed(of(given, at), expected)
        # Reformer draws other random numbers in each pass, whatever the state of the generators is.
        if not found <= _NOISE[half] and changed(of(watched, at), expected) <= _NOISE[half]:
            raise BadInput(
                f"the rows of a micro-batch would see each other: the logits of one change by {found:.0%} with the rows beside it, so "
                "that losses depend on batch.micro" + (", and packed samples see samples of other rows" if form == "packed" else ""),
                "set batch.micro to 1, or train another model",
            )


def _as_data(rows: list[list[int]], form: Form) -> list[dict[str, list[int]]]:
    """Rows as the data set holds them."""
    if form == "plain":
        return [{"input_ids": row, "labels": row} for row in rows]
    if form == "packed":
        positions = [*range(_SAMPLE)] * 2
        return [{"input_ids": row, "labels": row, "position_ids": positions} for row in rows]
    pairs = [one + two for one, two in zip(rows[::2], rows[1::2], strict=True)]
    return [{"input_ids": pair, "labels": pair, "position_ids": [*range(_LENGTH)] * 2} for pair in pairs]
