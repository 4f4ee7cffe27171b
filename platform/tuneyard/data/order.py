"""The order of samples as a pure function: (seed, epoch, position) -> sample, in O(1) time and memory, the same for any number of ranks.

A keyed permutation of 0..count-1: a Feistel network over the next power of four, walked along its cycle until it lands inside
(Black & Rogaway 2002, "Ciphers with Arbitrary Finite Domains"). Placing the cursor anywhere costs nothing, so resuming skips nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

_MASK64 = (1 << 64) - 1
_ROUNDS = 6


class RowOrder(Protocol):
    """Which row stands at a position. Positions count on over epochs."""

    @property
    def epoch_rows(self) -> int:
        """Positions of one epoch."""

    def at(self, position: int) -> int:
        """The index of the row at `position`."""


class MixedRowOrder(RowOrder, Protocol):
    """The order of the rows of several data sets."""

    @property
    def parts(self) -> int:
        """Data sets."""

    def part_of(self, row: int) -> int:
        """The number of the data set that the row with this index belongs to."""


@dataclass(frozen=True)
class Order:
    """The order in which `count` samples are seen. `shuffle` False: as they come, in every epoch."""

    count: int
    seed: int = 0
    shuffle: bool = True

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("an order needs at least one sample")

    def sample(self, epoch: int, position: int) -> int:
        """The sample at `position` (0..count-1) of `epoch`. Raises IndexError outside of that."""
        if not 0 <= position < self.count:
            raise IndexError(f"position {position} of {self.count}")
        if not self.shuffle or self.count == 1:
            return position
        half_bits = max(1, ((self.count - 1).bit_length() + 1) // 2)
        keys = [_mix(_mix(self.seed ^ (turn << 56)) ^ epoch) for turn in range(_ROUNDS)]
        place = _feistel(position, half_bits, keys)
        while place >= self.count:
            place = _feistel(place, half_bits, keys)
        return place

    @property
    def epoch_rows(self) -> int:
        """Positions of one epoch."""
        return self.count

    def at(self, position: int) -> int:
        """The sample at a position that counts on over epochs: `at(count)` is the first of epoch 1."""
        epoch, inside = divmod(position, self.count)
        return self.sample(epoch, inside)


def mixed_seed(seed: int, number: int) -> int:
    """A seed of its own for the `number`-th of several orders."""
    return _mix(_mix(seed & _MASK64) ^ number)


def _feistel(value: int, half_bits: int, keys: list[int]) -> int:
    mask = (1 << half_bits) - 1
    left, right = value >> half_bits, value & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return left << half_bits | right


def _mix(value: int) -> int:
    """splitmix64 (Steele et al. 2014): every input bit reaches every output bit."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)
