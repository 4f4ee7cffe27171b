"""Sums of pairs of rows, added up in units of resampling.

Up to 4,096 rows, a unit is a row. Of more rows, each is assigned to one of 4,096 units by a hash of its place. Sums of such units are
independent and equally distributed, so that drawing units has the variance of drawing rows, up to 1 part in 4,096.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuneyard.data.row_sample import row_keys
from tuneyard.scoring.paired.row_sums import Numbers, RowSums

MOST_UNITS = 4096
_SEED = 1979
"""Of no sample of rows: keys below a share would fall into few units."""
_TIE = 1e-6
"""Values that differ by less than this share of the larger one are equal: engines compute likelihoods in batches of changing sizes."""


def units_of(first: int, rows: int, at_most: int) -> NDArray[np.int64]:
    """The units of `rows` pairs from the pair number `first` on. `at_most`: upper bound of the number of all pairs."""
    places = np.arange(first, first + rows, dtype=np.int64)
    if at_most <= MOST_UNITS:
        return places
    # By a hash, because neighbours in the data are often alike.
    return (row_keys(places, _SEED) % np.uint64(MOST_UNITS)).astype(np.int64)


@dataclass(frozen=True)
class Drawn:
    """The units that hold rows of one metric. `sums`, `against` (units x names): sums of `Metric.count`. `outcomes` (units x 3): wins,
    ties and losses."""

    names: tuple[str, ...]
    sums: Numbers
    against: Numbers
    outcomes: Numbers


class Units:
    """Adds up one metric of two tasks."""

    def __init__(self, at_most: int, *, higher_is_better: bool) -> None:
        self._count = min(at_most, MOST_UNITS)
        self._higher_is_better = higher_is_better
        self._names: tuple[str, ...] = ()
        self._sums: Numbers = np.zeros((self._count, 0))
        self._against: Numbers = np.zeros((self._count, 0))
        self._outcomes = np.zeros((self._count, 3))

    def add(self, units: NDArray[np.int64], task: RowSums, against: RowSums) -> Numbers:
        """Add pairs of rows. Returns by how much `task` is better in each row: NaN where one of the two lacks the metric."""
        if not self._names:
            self._names = task.names
            self._sums, self._against = (np.zeros((self._count, len(task.names))) for _ in range(2))
        both = task.known & against.known
        better = np.where(both, task.values - against.values, np.nan) * (1 if self._higher_is_better else -1)
        largest = np.maximum(np.abs(task.values), np.abs(against.values))
        better = np.where(np.abs(better) <= _TIE * largest, 0.0, better)
        kept = units[both]
        for total, sums in ((self._sums, task.sums[both]), (self._against, against.sums[both])):
            for column in range(total.shape[1]):
                total[:, column] += np.bincount(kept, sums[:, column], self._count)
        for column, happened in enumerate((better > 0, better == 0, better < 0)):
            self._outcomes[:, column] += np.bincount(units[happened], minlength=self._count)
        return better

    def drawn(self) -> Drawn:
        """The units that hold at least one pair."""
        held = self._outcomes.sum(axis=1) > 0
        return Drawn(self._names, self._sums[held], self._against[held], self._outcomes[held])
