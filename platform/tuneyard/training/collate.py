"""Rows of tokens -> tensors of one micro-batch. Padding never counts, and packed samples never see each other.

A packed row carries `position_ids` that restart at 0 with every sample. transformers builds a block-diagonal causal mask from
them for sdpa and eager attention when no attention mask is given and nothing is cached (masking_utils.find_packed_sequence_indices,
any batch size); flash attention looks at them for a batch of one only, so rows are laid end to end for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

IGNORED = -100
Row = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Collator:
    """Builds micro-batches. `lay_flat`: one row of all samples end to end, for flash attention over packed rows."""

    pad_token_id: int
    lay_flat: bool = False

    def __call__(self, rows: list[Row]) -> dict[str, Any]:
        """Tensors [rows, longest row]; `tokens` and `squares` are plain numbers for the throughput account: the tokens of each row, and
        the sum of squared sample lengths (attention is quadratic in those)."""
        if "position_ids" not in rows[0]:
            return self._padded(rows)
        return self._flat(rows) if self.lay_flat else self._packed(rows)

    def _padded(self, rows: list[Row]) -> dict[str, Any]:
        lengths = [len(row["input_ids"]) for row in rows]
        attention_mask = torch.zeros(len(rows), max(lengths), dtype=torch.long)
        for i, length in enumerate(lengths):
            attention_mask[i, :length] = 1
        return {
            "input_ids": _pad([row["input_ids"] for row in rows], self.pad_token_id),
            "labels": _pad([row["labels"] for row in rows], IGNORED),
            "attention_mask": attention_mask,
            "tokens": lengths,
            "squares": sum(length * length for length in lengths),
        }

    def _packed(self, rows: list[Row]) -> dict[str, Any]:
        # A padded position restarts at 0: each is a sample of its own, which nothing attends to and which attends to nothing.
        position_ids = _pad([row["position_ids"] for row in rows], 0)
        labels = _pad([row["labels"] for row in rows], IGNORED)
        labels[position_ids == 0] = IGNORED  # the first token of a sample must not be predicted from the sample before
        return {
            "input_ids": _pad([row["input_ids"] for row in rows], self.pad_token_id),
            "labels": labels,
            "position_ids": position_ids,
            **_account([row["position_ids"] for row in rows]),
        }

    def _flat(self, rows: list[Row]) -> dict[str, Any]:
        end_to_end = {
            name: torch.tensor([[value for row in rows for value in row[name]]]) for name in ("input_ids", "labels", "position_ids")
        }
        end_to_end["labels"][end_to_end["position_ids"] == 0] = IGNORED
        return {**end_to_end, **_account([row["position_ids"] for row in rows])}


def _pad(rows: list[Sequence[int]], value: int) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.as_tensor(row) for row in rows], batch_first=True, padding_value=value)


def _account(position_ids: list[Sequence[int]]) -> dict[str, Any]:
    squares = 0
    for row in position_ids:
        lengths = np.diff(np.append(np.flatnonzero(np.asarray(row) == 0), len(row)))
        squares += int((lengths * lengths).sum())
    return {"tokens": [len(row) for row in position_ids], "squares": squares}
