"""The order of splits where some lie in files that can only be read from their front. Pure.

Such files are dealt to a few lanes; in a lane one file follows the other, each from its front. The splits of each lane, and all others in
the order that `strata` has, are spread evenly over the epoch, each at random in its share of it. So every process reads each file about
once, with a few of them open, and the files of all lanes are mixed. Which file comes when is drawn anew in every epoch.
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
"""Files that are read at the same time: as many are open in each process that makes rows."""
_PERMUTED_BYTES = 1 << 30
"""Up to this size, splits of such files are permuted like all others: the bytes are passed over within seconds."""

Splits = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sequences:
    """Runs of splits that are read one after the other: (first split, splits) of each file. `ascending`: they are taken in that order."""

    runs: tuple[tuple[int, int], ...]
    ascending: bool

    @classmethod
    def of(cls, runs: Sequence[tuple[int, int]], size_bytes: int) -> Sequences | None:
        """`size_bytes`: of all runs. None where there are none."""
        return cls(tuple(runs), size_bytes > _PERMUTED_BYTES) if runs else None

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Sequences:
        """From what `dataclasses.asdict` makes, also by way of JSON."""
        return cls(tuple((first, count) for first, count in given["runs"]), given["ascending"])


@dataclass(frozen=True)
class AscendingOrder:
    """The order in which `count` splits are taken: those of each run ascend. `strata`: of the others, as of `StratifiedOrder`."""

    count: int
    sequences: Sequences
    seed: int
    strata: int

    def between(self, epoch: int, first: int, end: int) -> list[int]:
        """The splits at positions [first, end) of an epoch, which `count` bounds."""
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
        """(count,): at each position of an epoch a split of a run, or ~i for the i-th of the others."""
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
    """splitmix64 of seed + 0..count-1: no library's version changes it."""
    value = np.arange(count, dtype=np.uint64) + np.uint64(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        value = (value ^ (value >> np.uint64(shift))) * np.uint64(factor)
    return value
