"""Figures in windows of rows or of time, in one pass and in bounded memory.

Window w has the places from w * width to (w + 1) * width. If there are too many windows, the width doubles until they are few enough:
neighbours are joined, and no row is lost. The final width depends only on the places, so that sums of batches, parts and ranks may be
merged in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuneyard.ranking.metrics import JudgedRows, RankFigures, RankMetrics

WINDOW_BINS = 1 << 11
"""32 KiB a window. Logits in a bin differ by 0.02 at most, inside of the reach of 20."""
MOST_WINDOWS = 500
_FARTHEST = 2.0**62


@dataclass(frozen=True)
class WindowFigures:
    """Figures of the places from `start` up to `stop` (exclusive)."""

    start: float
    stop: float
    figures: RankFigures


class WindowedMetrics:
    """Sums of each window with rows."""

    def __init__(self, width: float, most: int = MOST_WINDOWS) -> None:
        """`width`: initial width of a window, in rows or in the unit of time; `most`: number of windows to keep."""
        if not width > 0 or most < 2:
            raise ValueError(f"windows have a width above 0, and there are at least two; got {width} and {most}")
        self.unplaced = 0
        """Rows that count but have no place: null, NaN, or too large to be numbered."""
        self._first_width, self._most, self._doublings = width, most, 0
        self._windows: dict[int, RankMetrics] = {}

    @property
    def width(self) -> float:
        """Current width of a window."""
        return self._first_width * (1 << self._doublings)

    def update(self, logits: npt.NDArray[Any], labels: npt.NDArray[Any], places: npt.NDArray[Any]) -> None:
        """Count rows: `logits`, `labels` (0 or 1) and `places` (row numbers or times), one per row."""
        self.add(JudgedRows.of(logits, labels), places)

    def add(self, judged: JudgedRows, places: npt.NDArray[Any]) -> None:
        """Count rows with known loss; `places` of all rows, in any order."""
        at = judged.of_counted(np.asarray(places))
        with np.errstate(invalid="ignore"):
            numbers = np.floor_divide(at, self._first_width)
        placed = np.abs(numbers) < _FARTHEST  # false for NaN too
        if not placed.all():
            self.unplaced += int(np.count_nonzero(~placed))
            judged, numbers = judged.select(placed), numbers[placed]
        if not len(numbers):
            return
        numbers = numbers.astype(np.int64) >> self._doublings
        while len(self._windows.keys() | set(np.unique(numbers).tolist())) > self._most:
            self._double()
            numbers >>= 1
        for number, rows in judged.groups(numbers):
            self._windows.setdefault(number, RankMetrics(WINDOW_BINS)).add(rows)

    def _double(self) -> None:
        before, self._windows = self._windows, {}
        self._doublings += 1
        for number, sums in before.items():
            self._windows[number >> 1] = self._windows[number >> 1].merge(sums) if number >> 1 in self._windows else sums

    def merge(self, other: WindowedMetrics) -> WindowedMetrics:
        """The sums of both. Raises ValueError if their initial widths differ."""
        if (self._first_width, self._most) != (other._first_width, other._most):
            raise ValueError(f"windows of {self._first_width} and of {other._first_width} do not add up")
        made = WindowedMetrics(self._first_width, self._most)
        made.unplaced = self.unplaced + other.unplaced
        made._doublings = max(self._doublings, other._doublings)
        for each in (self, other):
            for number, sums in each._windows.items():
                at = number >> made._doublings - each._doublings
                made._windows[at] = made._windows.get(at, RankMetrics(WINDOW_BINS)).merge(sums)
        while len(made._windows) > made._most:
            made._double()
        return made

    def figures(self) -> list[WindowFigures]:
        """Figures in the order of places; windows without rows are left out."""
        width = self.width
        return [WindowFigures(number * width, (number + 1) * width, sums.figures()) for number, sums in sorted(self._windows.items())]

    def to_dict(self) -> dict[str, Any]:
        """The sums for JSON."""
        return {
            "width": self._first_width,
            "most": self._most,
            "doublings": self._doublings,
            "unplaced": self.unplaced,
            "windows": [[number, sums.to_dict()] for number, sums in self._windows.items()],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> WindowedMetrics:
        """The sums from `to_dict`. Raises KeyError for other values."""
        made = cls(values["width"], values["most"])
        made.unplaced, made._doublings = values["unplaced"], values["doublings"]
        made._windows = {number: RankMetrics.from_dict(sums) for number, sums in values["windows"]}
        return made
