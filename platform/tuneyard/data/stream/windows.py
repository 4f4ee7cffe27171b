"""The order of a streamed data set: splits permuted, windows of splits in that order, rows permuted within a window. Pure.

A position is found from where its window starts, which is known once the windows before it were built, or from a cursor. So a checkpoint
holds a cursor, and resuming builds one window. The first windows of the first epoch are small, so that the first step waits for one shard.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from tuneyard.data.order import Order, mixed_seed

WINDOW = 256
"""Splits of a window."""


@dataclass(frozen=True, slots=True)
class Place:
    """A window: the epoch, and its number within it."""

    epoch: int
    window: int


@dataclass(frozen=True)
class Windows:
    """The windows of each epoch over `splits` splits. `shuffle` False: splits and rows as they come, a window for each split."""

    splits: int
    seed: int
    shuffle: bool = True

    @cached_property
    def _counts(self) -> tuple[int, int]:
        """Windows of the first epoch, and of each later one."""
        if not self.shuffle:
            return self.splits, self.splits
        first, later = 0, -(-self.splits // WINDOW)
        while self._first(Place(0, first)) < self.splits:
            first += 1
        return first, later

    def count(self, epoch: int) -> int:
        """Windows of an epoch."""
        return self._counts[min(epoch, 1)]

    def splits_at(self, place: Place) -> list[int]:
        """The splits of a window, in order."""
        first, end = self._first(place), min(self._first(Place(place.epoch, place.window + 1)), self.splits)
        order = Order(self.splits, self.seed, self.shuffle)
        return [order.sample(place.epoch, position) for position in range(first, end)]

    def after(self, place: Place) -> Place:
        """The window that follows, in this epoch or the next."""
        return Place(place.epoch, place.window + 1) if place.window + 1 < self.count(place.epoch) else Place(place.epoch + 1, 0)

    def row(self, place: Place, rows: Sequence[int], position: int) -> tuple[int, int]:
        """Of a window whose splits have so many `rows`: which of its splits, and which row of it, stands at `position`."""
        starts = list(accumulate(rows, initial=0))
        if self.shuffle:
            position = Order(starts[-1], mixed_seed(self.seed, place.window + 1)).sample(place.epoch, position)
        split = bisect_right(starts, position) - 1
        return split, position - starts[split]

    def _first(self, place: Place) -> int:
        """Where a window begins among an epoch's splits: in the first epoch at 0, 1, 2, 4, 8, … WINDOW, and on by WINDOW."""
        if not self.shuffle:
            return place.window
        if place.epoch > 0:
            return WINDOW * place.window
        doublings = WINDOW.bit_length()
        if place.window <= doublings:
            return 0 if place.window == 0 else 1 << (place.window - 1)
        return WINDOW * (place.window - doublings + 1)
