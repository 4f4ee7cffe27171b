"""A hash of the features of each row of a batch, for holding rows out: equal features have equal hashes, on every machine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from tuneyard.ranking.batches import LABELS

Hashes = npt.NDArray[np.uint64]


def row_hashes(batch: Mapping[str, torch.Tensor]) -> Hashes:
    """Hashes [rows] of the tensors from `batches.batch_of`. All missing numbers are equal.

    Labels do not count: if a row was shown twice and clicked once, either occurrence reveals it to the ranker.
    """
    total: Hashes | None = None
    features = [name for name in sorted(batch) if name != LABELS and not name.endswith(".offsets")]
    for number, name in enumerate(features):
        values = batch[name].numpy()
        if name.endswith(".ids"):
            offsets = batch[f"{name.removesuffix('.ids')}.offsets"].numpy()
            lengths = np.diff(offsets)
            within = np.arange(len(values)) - np.repeat(offsets[:-1], lengths)
            each = _mixed(_mixed(values.view(np.uint64)) ^ within.astype(np.uint64))
            sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(each, dtype=np.uint64)])
            found = sums[offsets[1:]] - sums[offsets[:-1]] + lengths.astype(np.uint64)
        else:
            bits = np.where(np.isfinite(values), values + np.float32(0), np.float32(np.inf)).view(np.uint32).astype(np.uint64)
            places = np.arange(bits.shape[1], dtype=np.uint64)
            found = _mixed(_mixed(bits) ^ places).sum(1, dtype=np.uint64)
        mixed = _mixed(found ^ np.uint64(number))
        total = mixed if total is None else _mixed(total * np.uint64(3) + mixed)
    assert total is not None
    return total


def _mixed(values: npt.NDArray[np.uint64]) -> Hashes:
    """SplitMix64 (Steele et al. 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
