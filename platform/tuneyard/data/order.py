"""The order of samples as a pure function: (seed, epoch, position) -> sample, in O(1) time and memory, the same for any number of ranks.

The order is a keyed permutation of 0..count-1: a Feistel network over the next power of four, walked along its cycle until it lands inside
(Black & Rogaway 2002, "Ciphers with Arbitrary Finite Domains"). Any position is computed directly, so a resumed run reads no skipped rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
_MASK64 = (1 << 64) - 1
_ROUNDS = 6


class RowOrder(Protocol):
    """A map from positions to rows. Positions count on over epochs."""

    @property
    def epoch_rows(self) -> int:
        """Positions of one epoch."""

    def at(self, position: int) -> int:
        """The index of the row at `position`."""

    def at_each(self, positions: Positions) -> Positions:
        """`at` of each of many positions, computed at once."""


class MixedRowOrder(RowOrder, Protocol):
    """The order of the rows of several data sets."""

    @property
    def parts(self) -> int:
        """Number of data sets."""

    def part_of(self, row: int) -> int:
        """The number of the data set to which the row with this index belongs."""


@dataclass(frozen=True)
class Order:
    """The order of `count` samples. `shuffle` False: their own order in every epoch."""

    count: int
    seed: int = 0
    shuffle: bool = True

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("an order needs at least one sample")

    def sample(self, epoch: int, position: int) -> int:
        """The sample at `position` (0..count-1) of `epoch`. Raises IndexError for other positions."""
        if not 0 <= position < self.count:
            raise IndexError(f"position {position} of {self.count}")
        if not self.shuffle or self.count == 1:
            return position
        keys = self._keys(epoch)
        place = _feistel(position, self._half_bits, keys)
        while place >= self.count:
            place = _feistel(place, self._half_bits, keys)
        return place

    def samples(self, epoch: int, positions: Positions) -> Positions:
        """`sample` of each of many positions of one epoch. Raises IndexError if one lies outside of it."""
        if positions.size and not 0 <= int(positions.min()) <= int(positions.max()) < self.count:
            raise IndexError(f"positions {positions.min()} to {positions.max()} of {self.count}")
        if not self.shuffle or self.count == 1:
            return positions
        keys = np.asarray(self._keys(epoch), dtype=np.uint64)
        places = _feistel_each(positions.astype(np.uint64), self._half_bits, keys)
        while (outside := np.flatnonzero(places >= np.uint64(self.count))).size:
            places[outside] = _feistel_each(places[outside], self._half_bits, keys)
        return places.astype(np.int64)

    @property
    def _half_bits(self) -> int:
        return max(1, ((self.count - 1).bit_length() + 1) // 2)

    def _keys(self, epoch: int) -> list[int]:
        return [_mix(_mix(self.seed ^ (turn << 56)) ^ epoch) for turn in range(_ROUNDS)]

    @property
    def epoch_rows(self) -> int:
        """Positions of one epoch."""
        return self.count

    def at(self, position: int) -> int:
        """The sample at a position that counts on over epochs: `at(count)` is the first of epoch 1."""
        epoch, inside = divmod(position, self.count)
        return self.sample(epoch, inside)

    def at_each(self, positions: Positions) -> Positions:
        """`at` of each of many positions: the same values, about a hundred times as fast for thousands of positions."""
        epochs, inside = np.divmod(positions, self.count)
        found = np.empty_like(inside)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            found[chosen] = self.samples(int(epoch), inside[chosen])
        return found


def mixed_seed(seed: int, number: int) -> int:
    """A separate seed for the `number`-th of several orders."""
    return _mix(_mix(seed & _MASK64) ^ number)


def _feistel(value: int, half_bits: int, keys: list[int]) -> int:
    mask = (1 << half_bits) - 1
    left, right = value >> half_bits, value & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return left << half_bits | right


def _feistel_each(values: npt.NDArray[np.uint64], half_bits: int, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> shift, values & mask
    for key in keys:
        left, right = right, left ^ (_mix_each(right ^ key) & mask)
    joined: npt.NDArray[np.uint64] = left << shift | right
    return joined


def _mix_each(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """`_mix` of each value, which it overwrites. 64-bit arithmetic wraps, as the mask of `_mix` does."""
    values += np.uint64(0x9E3779B97F4A7C15)
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def _mix(value: int) -> int:
    """splitmix64 (Steele et al. 2014): every input bit reaches every output bit."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)
