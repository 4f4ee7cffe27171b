"""Logits of a ranker for rows of a table, in batches that fit into memory. A row that the ranker cannot take has its own error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from tuneyard.ranking import Ranker, tensors_of
from tuneyard.ranking.columns import is_list

_BATCH_BYTES = 64 << 20
"""Maximum bytes of the columns of a batch: a batch of long lists has fewer rows."""


class Scorer:
    """A ranker on its device, for use by one thread."""

    def __init__(self, ranker: Ranker, batch_rows: int, device: torch.device) -> None:
        self.config = ranker.config
        self._ranker, self._batch_rows, self._device = ranker.to(device).eval(), batch_rows, device

    def logits(self, columns: pa.RecordBatch) -> tuple[npt.NDArray[np.float32], list[str | None]]:
        """Logits [rows, tasks], NaN for rows with an error; and the error of each row. `columns`: transformed columns."""
        features = columns.select(list(self.config.features))
        found = np.full((features.num_rows, len(self.config.tasks)), np.nan, dtype=np.float32)
        errors = row_errors(features, [feature.name for feature in self.config.sparse])
        at = 0
        for batch in _batches(features, self._batch_rows):
            good = np.flatnonzero([error is None for error in errors[at : at + batch.num_rows]])
            if len(good):
                found[at + good] = self._forward(batch if len(good) == batch.num_rows else batch.take(pa.array(good)))
            at += batch.num_rows
        for row in np.flatnonzero(~np.isfinite(found).all(1)):
            errors[row] = errors[row] or "the ranker's logit is not a finite number"
        return found, errors

    def _forward(self, batch: pa.RecordBatch) -> npt.NDArray[np.float32]:
        tensors = {name: tensor.to(self._device) for name, tensor in tensors_of(batch, self.config, labels=False).items()}
        with torch.inference_mode():
            logits: npt.NDArray[np.float32] = self._ranker(tensors).float().cpu().numpy()
        return logits


def row_errors(columns: pa.RecordBatch, sparse: Sequence[str]) -> list[str | None]:
    """The error of each row that cannot be scored, because a list holds a null."""
    errors: list[str | None] = [None] * columns.num_rows
    for name in sparse:
        column = columns.column(name)
        if not is_list(column.type):
            continue
        values = column.flatten()
        if values.null_count:
            lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
            rows = np.repeat(np.arange(len(column)), lengths)
            for row in np.unique(rows[values.is_null().to_numpy(zero_copy_only=False)]):
                errors[row] = f"a list of {name} holds a null"
    return errors


def _batches(columns: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Slices of at most `rows` rows, and at most 64 MiB unless a single row is larger."""
    for start in range(0, columns.num_rows, rows):
        yield from _halved(columns.slice(start, rows))


def _halved(columns: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if columns.num_rows < 2 or columns.nbytes <= _BATCH_BYTES:
        yield columns
        return
    half = columns.num_rows // 2
    yield from _halved(columns.slice(0, half))
    yield from _halved(columns.slice(half))
