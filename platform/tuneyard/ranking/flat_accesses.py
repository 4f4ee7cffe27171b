"""Accesses of the tables' rows, counted over stored rows before training: the accesses of every epoch, the same at every resume."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from tuneyard.ranking.config import RankerConfig, SparseFeature
from tuneyard.ranking.tables.accesses import AccessCurve, RowCounts
from tuneyard.ranking.tables.ids import hashed

_AT_ONCE = 1 << 20
_MOST = 1 << 24
"""Rows that are counted, at most; of more rows, a sample at equal distances."""


class CountedRows(Protocol):
    """Rows whose ids are counted: stored ones, or the first window of a stream."""

    @property
    def config(self) -> RankerConfig: ...

    def __len__(self) -> int: ...

    def ids(self, feature: SparseFeature, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]: ...


def access_curves(rows: CountedRows) -> dict[str, AccessCurve]:
    """Access curves by sparse feature with ids. Of a sequence, only the ids that count; an id outside of its table counts at its hashed
    row.
    """
    chosen = np.arange(0, len(rows), max(1, -(-len(rows) // _MOST)))
    found = {}
    for feature in rows.config.sparse:
        counts = RowCounts(feature.rows)
        for start in range(0, len(chosen), _AT_ONCE):
            ids = torch.from_numpy(rows.ids(feature, chosen[start : start + _AT_ONCE]))
            counts.add(hashed(ids, feature.rows).numpy())
        if (curve := counts.curve()) is not None:
            found[feature.name] = curve
    return found
