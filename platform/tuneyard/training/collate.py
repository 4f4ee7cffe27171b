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
import numpy.typing as npt
import torch

from tuneyard.data.token_batch import IGNORED, TokenBatch

Row = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Collator:
    """Builds micro-batches. `lay_flat`: one row of all samples end to end, for flash attention over packed rows."""

    pad_token_id: int
    lay_flat: bool = False

    def __call__(self, rows: TokenBatch | Sequence[Row]) -> dict[str, Any]:
        """Tensors [rows, longest row]; `tokens` and `squares` are plain numbers for the throughput account: the tokens of each row, and
        the sum of squared sample lengths (attention is quadratic in those)."""
        batch = rows if isinstance(rows, TokenBatch) else TokenBatch.of_rows(rows)
        if batch.position_ids is None:
            return self._padded(batch)
        # The first token of a sample must not be predicted from the sample before. A padded position restarts at 0: each is a sample of
        # its own, which nothing attends to and which attends to nothing.
        labels = np.where(batch.position_ids == 0, IGNORED, batch.labels)
        named = {"input_ids": batch.input_ids, "labels": labels, "position_ids": batch.position_ids}
        padding = batch.padding
        if padding is not None and self.lay_flat:
            named = {name: matrix[~padding] for name, matrix in named.items()}
        elif padding is not None:
            named["input_ids"] = np.where(padding, self.pad_token_id, batch.input_ids)
        if self.lay_flat:
            named = {name: matrix.reshape(1, -1) for name, matrix in named.items()}
        positions = batch.position_ids if padding is None else batch.position_ids[~padding]
        tensors = {name: torch.from_numpy(matrix) for name, matrix in named.items()}
        return {**tensors, "tokens": batch.lengths.tolist(), "squares": _squares(positions.ravel())}

    def _padded(self, batch: TokenBatch) -> dict[str, Any]:
        padding = batch.padding
        if padding is None:
            ids, attention_mask = batch.input_ids, np.ones_like(batch.input_ids)
        else:
            ids, attention_mask = np.where(padding, self.pad_token_id, batch.input_ids), (~padding).astype(np.int64)
        return {
            "input_ids": torch.from_numpy(ids),
            "labels": torch.from_numpy(batch.labels),
            "attention_mask": torch.from_numpy(attention_mask),
            "tokens": batch.lengths.tolist(),
            "squares": int((batch.lengths * batch.lengths).sum()),
        }


def _squares(positions: npt.NDArray[np.int64]) -> int:
    """Of packed rows end to end: each sample begins where the position is 0."""
    lengths = np.diff(np.flatnonzero(positions == 0), append=len(positions))
    return int((lengths * lengths).sum())
