"""Rows of tokens -> tensors of one micro-batch. Padding never counts, and packed samples never see each other.

A packed row has `position_ids` that restart at 0 with every sample. For sdpa and eager attention, transformers derives a block-diagonal
causal mask from them if there is no attention mask and no cache (masking_utils.find_packed_sequence_indices, any batch size). Flash
attention uses them only for a batch of one, so rows are laid end to end for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tuneyard.api import TrainTask
from tuneyard.data.token_batch import IGNORED, TokenBatch
from tuneyard.planning import Plan

WIDTHS = 64
"""On GPUs, rows are padded to a multiple of this."""
Row = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Collator:
    """Builds micro-batches. `lay_flat`: one row of all samples end to end, for flash attention over packed rows.

    `multiple`: rows are padded to a multiple of it, but not beyond `longest` tokens. Libraries for GPUs prepare for each width that they
    meet (cuDNN builds a plan, in about a second).
    """

    pad_token_id: int
    lay_flat: bool = False
    multiple: int = 1
    longest: int = 0

    @classmethod
    def of(cls, task: TrainTask, plan: Plan, pad_token_id: int | None) -> Collator:
        """The collator of a task. Without a padding token, token 0 pads, which never counts."""
        return cls(
            pad_token_id or 0,
            lay_flat=task.data.pack and plan.attention == "flash",
            multiple=WIDTHS if plan.sku != "cpu" else 1,
            longest=task.data.max_length,
        )

    def __call__(self, rows: TokenBatch | Sequence[Row]) -> dict[str, Any]:
        """Tensors [rows, longest row]. `tokens` and `squares` are plain numbers for the throughput account: the tokens of each row, and the
        sum of squared sample lengths (attention is quadratic in them). The tensors share memory with the batch, and change it.
        """
        batch = rows if isinstance(rows, TokenBatch) else TokenBatch.of_rows(rows)
        if self.multiple > 1 and not self.lay_flat:
            width = batch.input_ids.shape[1]
            batch = batch.widened(min(width + -width % self.multiple, self.longest))
        if self.pad_token_id:
            for row, length in batch.short_rows():
                batch.input_ids[row, length:] = self.pad_token_id
        return self._padded(batch) if batch.position_ids is None else self._packed(batch, batch.position_ids)

    def _packed(self, batch: TokenBatch, position_ids: npt.NDArray[np.int64]) -> dict[str, Any]:
        # A padded position is 0: each is a sample of its own, without attention to or from others.
        starts = np.flatnonzero(position_ids.ravel() == 0)
        batch.labels.ravel()[starts] = IGNORED  # the first token of a sample must not be predicted from the sample before it
        ends = np.append(starts[1:], position_ids.size)
        lengths = ends - starts
        padding = position_ids.size - int(batch.lengths.sum())
        named = {"input_ids": batch.input_ids, "labels": batch.labels, "position_ids": position_ids}
        if self.lay_flat:
            kept = np.arange(position_ids.shape[1]) < batch.lengths[:, None]
            named = {name: matrix[kept][None, :] for name, matrix in named.items()}
        tensors = {name: torch.from_numpy(matrix) for name, matrix in named.items()}
        return {**tensors, "tokens": batch.lengths.tolist(), "squares": int(lengths @ lengths) - padding}

    def _padded(self, batch: TokenBatch) -> dict[str, Any]:
        attention_mask = np.ones_like(batch.input_ids)
        for row, length in batch.short_rows():
            attention_mask[row, length:] = 0
        return {
            "input_ids": torch.from_numpy(batch.input_ids),
            "labels": torch.from_numpy(batch.labels),
            "attention_mask": torch.from_numpy(attention_mask),
            "tokens": batch.lengths.tolist(),
            "squares": int(batch.lengths @ batch.lengths),
        }
