"""The order of prepared rows: the order of a stream over the same splits, with the row counts of all splits known. Pure."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256

import numpy as np

from tuneyard.data.order import Positions
from tuneyard.data.stream.windows import WINDOW, Place, Windows

_KEPT_EPOCHS = 2
_VERSION = 1
"""Version of the order. Raise it with every change of the order of the same rows."""


@dataclass(frozen=True)
class _Window:
    place: Place
    start: int
    """The window's first position in its epoch."""
    first_rows: Positions
    """The first row of each split of the window."""
    starts: Positions
    """For each split of the window, the number of rows before it in the window; then the number of all rows."""


@dataclass(frozen=True)
class PreparedOrder:
    """Rows are stored split after split; `rows[i]`: rows of split i. Each position has the same row as in a stream over the same splits."""

    windows: Windows
    rows: tuple[int, ...]
    _epochs: dict[int, list[_Window]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def epoch_rows(self) -> int:
        """Positions of one epoch."""
        return sum(self.rows)

    @cached_property
    def identity(self) -> str:
        """A hash of the order and the row count of each split. A checkpoint stores it to recognise its data."""
        windows = asdict(self.windows)
        if self.windows.most == WINDOW:  # as in checkpoints that are older than this field
            del windows["most"]
        return sha256(json.dumps([_VERSION, windows, self.rows]).encode()).hexdigest()[:32]

    @property
    def is_one_permutation(self) -> bool:
        """Whether an epoch is one window, in every epoch."""
        return self.windows.count(0) == self.windows.count(1) == 1

    @cached_property
    def _first_rows(self) -> Positions:
        """The first row of each split."""
        return np.cumsum(np.asarray([0, *self.rows[:-1]], dtype=np.int64))

    def at(self, position: int) -> int:
        """The index of the row at a position that counts on over epochs."""
        return int(self.at_each(np.asarray([position], dtype=np.int64))[0])

    def at_each(self, positions: Positions) -> Positions:
        """`at` of each of many positions."""
        epochs, inside = np.divmod(positions, self.epoch_rows)
        found = np.empty_like(inside)
        for epoch in np.unique(epochs).tolist():
            windows = self._windows_of(epoch)
            of_epoch = np.flatnonzero(epochs == epoch)
            numbers = np.searchsorted([window.start for window in windows], inside[of_epoch], side="right") - 1
            for number in np.unique(numbers).tolist():
                chosen, window = of_epoch[numbers == number], windows[number]
                which, rows = self.windows.rows_at(window.place, window.starts, inside[chosen] - window.start)
                found[chosen] = window.first_rows[which] + rows
        return found

    def place_of(self, position: int) -> Place:
        """The window of a position."""
        epoch, inside = divmod(position, self.epoch_rows)
        windows = self._windows_of(epoch)
        return windows[bisect_right(windows, inside, key=lambda window: window.start) - 1].place

    def split_of(self, rows: Positions) -> tuple[Positions, Positions]:
        """The split of each row, and the number of the row in that split. `rows`: indices of rows."""
        splits = np.searchsorted(self._first_rows, rows, side="right") - 1
        return splits, rows - self._first_rows[splits]

    def _windows_of(self, epoch: int) -> list[_Window]:
        """The windows of an epoch, in order."""
        if epoch not in self._epochs:
            if len(self._epochs) >= _KEPT_EPOCHS:
                self._epochs.pop(next(iter(self._epochs)))
            rows, found, start = np.asarray(self.rows, dtype=np.int64), [], 0
            for number in range(self.windows.count(epoch)):
                place = Place(epoch, number)
                splits = np.asarray(self.windows.splits_at(place), dtype=np.int64)
                starts = np.cumsum(np.concatenate([np.zeros(1, np.int64), rows[splits]]))
                found.append(_Window(place, start, self._first_rows[splits], starts))
                start += int(starts[-1])
            self._epochs[epoch] = found
        return self._epochs[epoch]
