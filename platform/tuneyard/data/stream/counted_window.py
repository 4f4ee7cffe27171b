"""A window with counted rows: the split and the row at each of its positions.

Positions are computed in blocks, and the last few blocks are kept. A block costs as much as three single positions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from tuneyard.data.order import Positions
from tuneyard.data.stream.windows import Place, Windows

_BLOCK, _KEPT = 4096, 4


class CountedWindow:
    """The positions `start` to `end` - 1 of a stream."""

    def __init__(self, windows: Windows, place: Place, start: int, splits: Sequence[int], rows: Sequence[int]) -> None:
        """`splits` of the window, by their numbers, and the `rows` of each."""
        self.place = place
        self._splits = np.asarray(splits, dtype=np.int64)
        self.start = start
        self.starts: Positions = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(rows, dtype=np.int64))])
        self.end = start + int(self.starts[-1])
        self._windows = windows
        self._blocks: OrderedDict[int, list[tuple[int, int]]] = OrderedDict()

    @property
    def rows(self) -> list[int]:
        """Number of rows of each split of the window."""
        found: list[int] = np.diff(self.starts).tolist()
        return found

    def at(self, position: int) -> tuple[int, int]:
        """The number of the split, and its row, at a position of the stream."""
        block, inside = divmod(position - self.start, _BLOCK)
        known = self._blocks.get(block)
        if known is None:
            known = self._blocks[block] = self._computed(block * _BLOCK)
            if len(self._blocks) > _KEPT:
                self._blocks.popitem(last=False)
        return known[inside]

    def _computed(self, first: int) -> list[tuple[int, int]]:
        positions = np.arange(first, min(first + _BLOCK, self.end - self.start), dtype=np.int64)
        splits, rows = self._windows.rows_at(self.place, self.starts, positions)
        return list(zip(self._splits[splits].tolist(), rows.tolist(), strict=True))
