"""The order of training rows: splits permuted, windows of splits in that order, rows permuted within a window. Pure.

A position is found from the start of its window. The start is known from a cursor, or once all windows before it were built. A checkpoint
holds a cursor, so resuming builds one window. The first windows of the first epoch are small, so that the first step waits for few shards.
A small data set is one window: its order is one permutation of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np

from tuneyard.data.order import Order, Positions, mixed_seed
from tuneyard.data.stream.split_order import AscendingOrder, Sequences
from tuneyard.data.stream.strata import StratifiedOrder

WINDOW = 256
"""Splits of a window of texts."""
_FIRST_BYTES = 8 << 20
"""Source bytes of the first window: some seconds of tokenising. Its splits are spread over the data set, so its rows are mixed."""
_FIRST_SPLITS = 16
_SMALL = 4
"""A data set of at most this many first windows is one window."""


def is_small(size_bytes: int, among: int = 1) -> bool:
    """Whether data of this size are one window, if they are shuffled: no row is there before all rows are made. `among`: see `over`."""
    return size_bytes <= _SMALL * _FIRST_BYTES // among


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a window: its epoch, and its number in the epoch."""

    epoch: int
    window: int


@dataclass(frozen=True)
class Windows:
    """The windows of each epoch over `splits` splits. `shuffle` False: splits and rows in their own order, one window per split.

    `first`: splits of the first window of the first epoch, a power of two. Later windows grow to `most`, also a power of two.
    """

    splits: int
    seed: int
    shuffle: bool = True
    first: int = 1
    sequences: Sequences | None = None
    """Splits of files without random access."""
    most: int = field(default_factory=lambda: WINDOW)

    @classmethod
    def over(cls, sizes: Sequence[int], seed: int, *, shuffle: bool, sequences: Sequences | None = None, among: int = 1) -> Self:
        """The windows over splits with these source bytes. `among`: data sets whose first windows are read at once, and share the bytes of
        one.
        """
        wished = min(_FIRST_SPLITS, _FIRST_BYTES // among * len(sizes) // max(1, sum(sizes)))
        return cls(len(sizes), seed, shuffle, 1 << max(0, wished.bit_length() - 1), sequences)

    @cached_property
    def _counts(self) -> tuple[int, int]:
        """Number of windows of the first epoch, and of each later epoch."""
        if not self.shuffle:
            return self.splits, self.splits
        first, later = 0, -(-self.splits // self.most)
        while self._first(Place(0, first)) < self.splits:
            first += 1
        return first, later

    def count(self, epoch: int) -> int:
        """Number of windows of an epoch."""
        return self._counts[min(epoch, 1)]

    def splits_at(self, place: Place) -> list[int]:
        """The splits of a window, in order."""
        if self.count(place.epoch) == 1:
            return list(range(self.splits))
        first, end = self._first(place), min(self._first(Place(place.epoch, place.window + 1)), self.splits)
        if not self.shuffle:
            return list(range(first, end))
        if self.sequences is None:
            return [self._order.sample(place.epoch, position) for position in range(first, end)]
        if self._ascending is not None:
            return sorted(self._ascending.between(place.epoch, first, end))
        return sorted(self._order.sample(place.epoch, position) for position in range(first, end))

    @cached_property
    def _order(self) -> StratifiedOrder:
        return StratifiedOrder(self.splits, self.seed, self.most)

    @cached_property
    def _ascending(self) -> AscendingOrder | None:
        given = self.sequences
        return AscendingOrder(self.splits, given, self.seed, self.most) if given is not None and given.ascending else None

    def after(self, place: Place) -> Place:
        """The next window, in this epoch or the next one."""
        return Place(place.epoch, place.window + 1) if place.window + 1 < self.count(place.epoch) else Place(place.epoch + 1, 0)

    def rows_at(self, place: Place, starts: Positions, positions: Positions) -> tuple[Positions, Positions]:
        """For each position of a window, the number of its split in the window, and the row in the split.

        `starts`: split i of the window has rows starts[i] … starts[i + 1] - 1.
        """
        if self.shuffle:
            seed = mixed_seed(self.seed, place.window + 1) if place.window else self.seed
            positions = Order(int(starts[-1]), seed).samples(place.epoch, positions)
        splits = np.searchsorted(starts, positions, side="right") - 1
        return splits, positions - starts[splits]

    def _first(self, place: Place) -> int:
        """The first split of a window, in the order of its epoch: in the first epoch 0, first, 2 first, 4 first, … `most`, 2 most, …"""
        if not self.shuffle:
            return place.window
        if place.epoch > 0:
            return self.most * place.window
        if self.splits <= _SMALL * self.first:
            return self.splits * place.window
        doublings = (self.most // self.first).bit_length()
        if place.window <= doublings:
            return 0 if place.window == 0 else self.first << (place.window - 1)
        return self.most * (place.window - doublings + 1)
