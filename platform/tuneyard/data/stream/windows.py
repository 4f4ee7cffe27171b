"""The order of a streamed data set: splits permuted, windows of splits in that order, rows permuted within a window. Pure.

A position is found from where its window starts, which is known once the windows before it were built, or from a cursor. So a checkpoint
holds a cursor, and resuming builds one window. The first windows of an epoch are small, that the first step need not wait for many shards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from tuneyard.data.order import Order, mixed_seed

WINDOW = 64
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
    def count(self) -> int:
        """Windows of an epoch."""
        if not self.shuffle:
            return self.splits
        window = 0
        while self._first(window) < self.splits:
            window += 1
        return window

    def splits_at(self, place: Place) -> list[int]:
        """The splits of a window, in order."""
        first, end = self._first(place.window), min(self._first(place.window + 1), self.splits)
        order = Order(self.splits, self.seed, self.shuffle)
        return [order.sample(place.epoch, position) for position in range(first, end)]

    def after(self, place: Place) -> Place:
        """The window that follows, in this epoch or the next."""
        return Place(place.epoch, place.window + 1) if place.window + 1 < self.count else Place(place.epoch + 1, 0)

    def row(self, place: Place, rows: Sequence[int], position: int) -> tuple[int, int]:
        """Of a window whose splits have so many `rows`: which of its splits, and which row of it, stands at `position`."""
        starts = list(accumulate(rows, initial=0))
        if self.shuffle:
            position = Order(starts[-1], mixed_seed(self.seed, place.window + 1)).sample(place.epoch, position)
        split = bisect_right(starts, position) - 1
        return split, position - starts[split]

    def _first(self, window: int) -> int:
        """Where a window begins among an epoch's splits: 0, 1, 2, 4, 8, … WINDOW, and on by WINDOW."""
        if not self.shuffle:
            return window
        doublings = WINDOW.bit_length()
        if window <= doublings:
            return 0 if window == 0 else 1 << (window - 1)
        return WINDOW * (window - doublings + 1)
