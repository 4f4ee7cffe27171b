"""A permutation of splits that spreads neighbours over the whole data set, because files are often sorted by date, source or class. Pure.

Splits are cut into contiguous strata of equal size; the number of strata is a power of two. Each round takes one random split from every
stratum. The strata of a round are in bit-reversed order (van der Corput 1935): each aligned run of 2^k splits has one from every 2^k-th
part of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tuneyard.data.order import Order, mixed_seed


@dataclass(frozen=True)
class StratifiedOrder:
    """The order of `count` splits. `most`: maximum number of strata, a power of two."""

    count: int
    seed: int
    most: int

    @cached_property
    def _strata(self) -> int:
        return min(self.most, 1 << (self.count.bit_length() - 1))

    @cached_property
    def _last_round(self) -> list[int]:
        """The places in a round of strata that have one split more than the others."""
        size = self.count // self._strata
        return [place for place in range(self._strata) if self._bounds(self._reversed(place))[1] > size]

    def sample(self, epoch: int, position: int) -> int:
        """The split at `position` (0..count-1) of `epoch`. Raises IndexError for other positions."""
        if not 0 <= position < self.count:
            raise IndexError(f"position {position} of {self.count}")
        turn, place = divmod(position, self._strata)
        if turn == self.count // self._strata:
            stratum = self._reversed(self._last_round[place])
        else:
            turned = mixed_seed(self.seed, epoch << 32 | turn) % self._strata
            stratum = self._reversed(place) ^ turned  # runs of 2^k still have one from every 2^k-th part
        start, size = self._bounds(stratum)
        return start + Order(size, mixed_seed(self.seed, stratum)).sample(epoch, turn)

    def _bounds(self, stratum: int) -> tuple[int, int]:
        """The first split of a stratum, and the number of its splits."""
        start, end = (self.count * number // self._strata for number in (stratum, stratum + 1))
        return start, end - start

    def _reversed(self, place: int) -> int:
        bits = self._strata.bit_length() - 1
        return int(f"{place:0{bits}b}"[::-1], 2) if bits else 0
