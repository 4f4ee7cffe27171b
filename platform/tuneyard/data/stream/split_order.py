"""The order of splits where some lie in files without random access. Pure.

Such files are dealt to a few lanes. In a lane, files follow one another, each read from its front. The splits of each lane, and all other
splits in the order of `strata`, are spread evenly over the epoch, each at a random place in its share. Every process therefore reads each
file about once, with a few files open, and the files of all lanes are mixed. The order of files is drawn again in every epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tuneyard.data.order import mixed_seed
from tuneyard.data.stream.strata import StratifiedOrder

LANES = 16
"""Files that are read concurrently. Each process that builds rows has this many open."""
_PERMUTED_BYTES = 1 << 30
"""Up to this size, splits of such files are permuted like all others: their bytes are skipped within seconds."""

Splits = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sequences:
    """Runs of splits, one run per file: (first split, number of splits). `ascending`: the splits of a run are used in order."""

    runs: tuple[tuple[int, int], ...]
    ascending: bool

    @classmethod
    def of(cls, runs: Sequence[tuple[int, int]], size_bytes: int) -> Sequences | None:
        """The runs, which have `size_bytes` together. None for no runs."""
        return cls(tuple(runs), size_bytes > _PERMUTED_BYTES) if runs else None

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Sequences:
        """From the result of `dataclasses.asdict`, also after a round trip through JSON."""
        return cls(tuple((first, count) for first, count in given["runs"]), given["ascending"])


@dataclass(frozen=True)
class AscendingOrder:
    """The order of `count` splits. The splits of each run ascend. `strata`: for the others, the `most` of `StratifiedOrder`."""

    count: int
    sequences: Sequences
    seed: int
    strata: int

    def between(self, epoch: int, first: int, end: int) -> list[int]:
        """The splits at positions [first, end) of an epoch; `end` is at most `count`."""
        others = self._others
        order = StratifiedOrder(len(others), self.seed, self.strata)
        return [split if split >= 0 else int(others[order.sample(epoch, ~split)]) for split in self._taken(epoch)[first:end].tolist()]

    @cached_property
    def _others(self) -> Splits:
        """Splits that can be read in any order."""
        free = np.ones(self.count, dtype=bool)
        for first, count in self.sequences.runs:
            free[first : first + count] = False
        return np.flatnonzero(free)

    def _taken(self, epoch: int) -> Splits:
        """(count,): for each position of an epoch, a split of a run, or ~i for the i-th of the other splits."""
        if epoch not in self._epochs:
            base = mixed_seed(mixed_seed(self.seed, epoch), self.count)
            lanes = [*_lanes(self.sequences.runs, base), ~np.arange(len(self._others))]
            places = [_spread(len(lane), mixed_seed(base, number)) for number, lane in enumerate(lanes)]
            self._epochs.clear()
            self._epochs[epoch] = np.concatenate(lanes)[np.argsort(np.concatenate(places), kind="stable")]
        return self._epochs[epoch]

    @cached_property
    def _epochs(self) -> dict[int, Splits]:
        return {}


def _spread(count: int, seed: int) -> npt.NDArray[np.float64]:
    """Ascending places in [0, 1): one at random in each of `count` equal parts."""
    places: npt.NDArray[np.float64] = (np.arange(count) + _hashes(count, seed) / 2.0**64) / max(1, count)
    return places


def _lanes(runs: Sequence[tuple[int, int]], seed: int) -> list[Splits]:
    """Splits of each lane: runs in a random order, each to the lane that is the shortest so far."""
    lanes: list[list[Splits]] = [[] for _ in range(min(LANES, len(runs)))]
    lengths = [0] * len(lanes)
    for number in _permutation(len(runs), seed):
        first, count = runs[number]
        shortest = lengths.index(min(lengths))
        lanes[shortest].append(np.arange(first, first + count))
        lengths[shortest] += count
    return [np.concatenate(lane) for lane in lanes]


def _permutation(count: int, seed: int) -> Splits:
    return np.argsort(_hashes(count, seed), kind="stable").astype(np.int64)


def _hashes(count: int, seed: int) -> npt.NDArray[np.uint64]:
    """splitmix64 of seed + 0..count-1; independent of library versions."""
    value = np.arange(count, dtype=np.uint64) + np.uint64(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        value = (value ^ (value >> np.uint64(shift))) * np.uint64(factor)
    return value
