"""The distribution of a table's accesses over its rows: a curve of some hundred points, from counts of each row. Pure.

Placement cuts by this curve, so that ranges of rows have equal numbers of accesses. Full counts would need one number per row of the table.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
_POINTS = 1_024
"""Number of equal shares of the accesses. The curve is exact at their borders. A row with a larger share has a border on both sides."""
_HOTTEST = 0.01
_COUNTED_WHOLE = 1 << 24
_HALVINGS = 30


@dataclass(frozen=True)
class AccessCurve:
    """The share `shares[i]` of the accesses is below row `rows[i]`. The curve ascends from (0, 0) to (number of rows, 1), linear between
    points.

    `hottest`: share of the accesses of the most frequent 1 % of the rows; `unread`: share of the rows without any access.
    """

    rows: tuple[int, ...]
    shares: tuple[float, ...]
    hottest: float
    unread: float

    @classmethod
    def of(cls, rows: Counts, counts: Counts, height: int) -> AccessCurve | None:
        """The curve of a table. `rows`: rows with accesses, ascending; `counts`: of each; `height`: rows of the table. None without any
        access.
        """
        total = int(counts.sum())
        if not total:
            return None
        until = np.cumsum(counts)
        at = np.unique(np.searchsorted(until, np.arange(1, _POINTS) * (total / _POINTS)).clip(max=len(rows) - 1))
        borders = np.concatenate([[0], rows[at], rows[at] + 1, [height]])
        below = np.concatenate([[0], until[at] - counts[at], until[at], [total]])
        borders, first = np.unique(borders, return_index=True)
        below[first[-1]] = total
        most = max(1, int(height * _HOTTEST))
        hot = np.partition(counts, len(counts) - most)[-most:] if most < len(counts) else counts
        shares = below[first] / total
        shares[0] = 0.0  # row 0 may have accesses; none are below it
        return cls(tuple(borders.tolist()), tuple(shares.tolist()), float(hot.sum() / total), 1 - len(rows) / height)

    def below(self, row: int) -> float:
        """Share of the accesses below a row."""
        return float(np.interp(row, self.rows, self.shares))

    def cut(self, parts: int) -> list[int]:
        """Borders of `parts` ranges, each of at least one row. The largest share of a range is as small as the curve allows."""
        low, high = 1 / parts, 1.0
        for _ in range(_HALVINGS):
            share = (low + high) / 2
            if 1 - self.below(self._filled(parts, share)[-2]) <= share:
                high = share
            else:
                low = share
        return self._filled(parts, high)

    def _filled(self, parts: int, share: float) -> list[int]:
        """Borders for which each range but the last has at most `share` of the accesses."""
        height, found = self.rows[-1], [0]
        for at in range(1, parts):
            row = self._last_within(self.below(found[-1]) + share)
            found.append(min(max(row, found[-1] + 1), height - (parts - at)))
        return [*found, height]

    def _last_within(self, share: float) -> int:
        """The last row with at most this share below it."""
        if share >= 1:
            return self.rows[-1]
        at = bisect_right(self.shares, share)
        low, high = self.rows[at - 1], self.rows[at]
        return low + int((high - low) * (share - self.shares[at - 1]) / (self.shares[at] - self.shares[at - 1]))


class RowCounts:
    """Counts of a table's rows, added up over parts of the data. Large tables keep only counts of rows that were read."""

    def __init__(self, height: int) -> None:
        self._height = height
        self._all: Counts | None = np.zeros(height, dtype=np.int64) if height <= _COUNTED_WHOLE else None
        self._rows: Counts = np.zeros(0, dtype=np.int64)
        self._counts: Counts = np.zeros(0, dtype=np.int64)

    def add(self, rows: Counts) -> None:
        """Count accesses: `rows` has each row once per access."""
        if self._all is not None:
            self._all += np.bincount(rows, minlength=self._height)
            return
        once, counts = np.unique(rows, return_counts=True)
        self._rows, back = np.unique(np.concatenate([self._rows, once]), return_inverse=True)
        self._counts = np.bincount(back, np.concatenate([self._counts, counts]), len(self._rows)).astype(np.int64)

    def curve(self) -> AccessCurve | None:
        """The access curve; None without any access."""
        if self._all is None:
            return AccessCurve.of(self._rows, self._counts, self._height)
        rows = np.flatnonzero(self._all)
        return AccessCurve.of(rows, self._all[rows], self._height)
