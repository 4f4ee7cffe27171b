"""The order of a mixture as a pure function: position -> (part, its row), in O(log parts) time, the same for any number of ranks.

Positions are cut into blocks of BLOCK. A part has the same number of places in every block: its share, rounded by largest remainder. The
places of a part are spread over the block with a random offset each (stratified), so that every window has nearly the shares of the whole,
and no two blocks are alike. A part without rows left ends a segment; the next segment has the shares of the remaining parts.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from tuneyard.data.order import Positions

BLOCK = 8192
"""Positions of a block. The share of a part is a whole number of positions, and at least one. Tiny shares are rounded up at the cost of
the largest part."""
Exhausted = Literal["repeat", "leave", "stop"]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Part:
    """One data set of a mixture. `rows`: rows of one pass. `weight` None: its rows.

    `repeats` None: endless for `exhausted="repeat"`, else one pass.
    """

    name: str
    rows: int
    weight: float | None = None
    repeats: int | None = None


@dataclass(frozen=True)
class _Segment:
    """Positions from `start` on. `counts`: places of each part in a block. `base`: rows of each part before `start`."""

    start: int
    counts: tuple[int, ...]
    base: tuple[int, ...]


class Mixture:
    """Maps positions to parts and their rows.

    An epoch has `epoch_rows` positions. Where a part repeats endlessly, an epoch is as long as all parts together, and the mixture
    continues after it. Otherwise an epoch ends when all parts are exhausted, or (`stop`) when the first part is, and the mixture restarts.
    """

    def __init__(self, parts: Sequence[Part], *, seed: int = 0, exhausted: Exhausted = "repeat", temperature: float = 1.0) -> None:
        """Raises ValueError for no parts, and for a part without rows."""
        if not parts or any(part.rows < 1 for part in parts):
            raise ValueError("a mixture needs parts, and each part needs rows")
        self.parts = tuple(parts)
        self._seed = seed
        weights = [math.log(part.rows if part.weight is None else part.weight) / temperature for part in parts]
        highest = max(weights)
        self._weights = [max(math.exp(weight - highest), sys.float_info.min) for weight in weights]  # 0 means exhausted
        self._limits = [_limit(part, exhausted) for part in parts]
        self._layout = lru_cache(maxsize=8)(self._laid_out)
        self._segments, self._end = self._plan(stop=exhausted == "stop")
        self._at_end = () if self._end is None else tuple(self._counts_before(self._end))

    @property
    def epoch_rows(self) -> int:
        """Positions of an epoch."""
        return self._end if self._end is not None else sum(limit or part.rows for part, limit in zip(self.parts, self._limits, strict=True))

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each part in the first segment; shares add up to 1."""
        return tuple(count / BLOCK for count in self._segments[0].counts)

    def at(self, position: int) -> tuple[int, int]:
        """The number of the part, and the number of its row, which counts on over passes. Raises IndexError below 0."""
        if position < 0:
            raise IndexError(f"position {position}")
        epoch = 0
        if self._end is not None:
            epoch, position = divmod(position, self._end)
        index = bisect_right(self._segments, position, key=lambda segment: segment.start) - 1
        segment = self._segments[index]
        block, place = divmod(position - segment.start, BLOCK)
        parts, ranks = self._layout(index, block, segment.counts)
        part = int(parts[place])
        row = segment.base[part] + block * segment.counts[part] + int(ranks[place])
        return part, row + (epoch * self._at_end[part] if epoch else 0)

    def at_each(self, positions: Positions) -> tuple[Positions, Positions]:
        """`at` of each of many positions: the numbers of the parts, and of their rows. Raises IndexError below 0."""
        if positions.size and positions.min() < 0:
            raise IndexError(f"position {positions.min()}")
        epochs: Positions = np.zeros_like(positions) if self._end is None else positions // self._end
        inside: Positions = positions - epochs * (self._end or 0)
        starts = np.asarray([segment.start for segment in self._segments], dtype=np.int64)
        segments = np.searchsorted(starts, inside, side="right") - 1
        after = inside - starts[segments]
        blocks, places = after // BLOCK, after % BLOCK
        parts, ranks = np.empty_like(inside), np.empty_like(inside)
        for index, block in np.unique(np.stack([segments, blocks]), axis=1).T:
            chosen = (segments == index) & (blocks == block)
            parts_of, ranks_of = self._layout(int(index), int(block), self._segments[index].counts)
            parts[chosen], ranks[chosen] = parts_of[places[chosen]], ranks_of[places[chosen]]
        counts = np.asarray([segment.counts for segment in self._segments], dtype=np.int64)
        bases = np.asarray([segment.base for segment in self._segments], dtype=np.int64)
        rows: Positions = bases[segments, parts] + blocks * counts[segments, parts] + ranks
        if self._at_end:
            rows += epochs * np.asarray(self._at_end, dtype=np.int64)[parts]
        return parts, rows

    def counts(self, start: int, stop: int) -> list[int]:
        """Rows of each part at positions `start` to `stop` - 1."""
        return [after - before for before, after in zip(self._rows_before(start), self._rows_before(stop), strict=True)]

    def _rows_before(self, position: int) -> list[int]:
        if self._end is None:
            return self._counts_before(position)
        epochs, inside = divmod(position, self._end)
        return [epochs * whole + part for whole, part in zip(self._at_end, self._counts_before(inside), strict=True)]

    def _counts_before(self, position: int) -> list[int]:
        index = bisect_right(self._segments, position, key=lambda segment: segment.start) - 1
        segment = self._segments[index]
        block, place = divmod(position - segment.start, BLOCK)
        inside = (
            np.bincount(self._layout(index, block, segment.counts)[0][:place], minlength=len(self.parts))
            if place
            else [0] * len(self.parts)
        )
        return [base + block * count + int(more) for base, count, more in zip(segment.base, segment.counts, inside, strict=True)]

    def _plan(self, *, stop: bool) -> tuple[list[_Segment], int | None]:
        """The segments, and the position at which an epoch ends; None: the mixture is endless."""
        segments: list[_Segment] = []
        start, base, gone = 0, [0] * len(self.parts), [False] * len(self.parts)
        while not all(gone):
            counts = _places([0.0 if left else weight for weight, left in zip(self._weights, gone, strict=True)])
            segments.append(_Segment(start, counts, tuple(base)))
            ends = [
                (self._end_of(len(segments) - 1, part, limit - base[part], counts), part)
                for part, limit in enumerate(self._limits)
                if limit is not None and not gone[part]
            ]
            if not ends:
                return segments, None
            length, first = min(ends)
            index = len(segments) - 1
            block, place = divmod(length, BLOCK)
            inside = np.bincount(self._layout(index, block, counts)[0][:place], minlength=len(self.parts))
            base = [done + block * count + int(more) for done, count, more in zip(base, counts, inside, strict=True)]
            start += length
            gone[first] = True
            gone = [
                left or (limit is not None and base[part] >= limit)
                for part, (left, limit) in enumerate(zip(gone, self._limits, strict=True))
            ]
            if stop:
                break
        return segments, start

    def _end_of(self, segment: int, part: int, left: int, counts: tuple[int, ...]) -> int:
        """Length of a segment that ends with the `left`-th row of a part."""
        blocks, more = divmod(left - 1, counts[part])
        places = np.flatnonzero(self._layout(segment, blocks, counts)[0] == part)
        return blocks * BLOCK + int(places[more]) + 1

    def _laid_out(self, segment: int, block: int, counts: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The part of each place of a block, and the rank of the place among the places of its part."""
        parts = np.repeat(np.arange(len(counts)), counts)
        ranks = np.concatenate([np.arange(count) for count in counts])
        jitter = _uniform(self._seed, segment, block, BLOCK)
        order = np.argsort((ranks + jitter) / np.asarray(counts, dtype=np.float64)[parts], kind="stable")
        return parts[order], ranks[order]


def _limit(part: Part, exhausted: Exhausted) -> int | None:
    """Rows after which a part is exhausted; None: never."""
    if part.repeats is None and exhausted == "repeat":
        return None
    return part.rows * (part.repeats or 1)


def _places(weights: Sequence[float]) -> tuple[int, ...]:
    """Positions of each part in a block, by largest remainder (Hamilton); at least 1 for a weight above 0."""
    total = sum(weights)
    wished = [BLOCK * weight / total for weight in weights]
    counts = [max(1, math.floor(wish)) if weight else 0 for wish, weight in zip(wished, weights, strict=True)]
    by_remainder = sorted(range(len(weights)), key=lambda i: (counts[i] - wished[i], i))
    while sum(counts) < BLOCK:
        for i in by_remainder[: BLOCK - sum(counts)]:
            counts[i] += 1 if weights[i] else 0
    while sum(counts) > BLOCK:
        counts[max(range(len(counts)), key=lambda i: (counts[i], -i))] -= 1
    return tuple(counts)


def _uniform(seed: int, segment: int, block: int, count: int) -> npt.NDArray[np.float64]:
    """`count` numbers in [0, 1) by splitmix64 (Steele et al. 2014): the same on every machine and with every version of numpy."""
    with np.errstate(over="ignore"):
        key = np.uint64(seed % (1 << 64)) * _GOLDEN ^ (np.uint64(segment) << np.uint64(48)) ^ np.uint64(block)
        value = (_mixed(np.asarray([key]))[0] + np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN).astype(np.uint64)
        return (_mixed(value) >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def _mixed(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = value ^ (value >> np.uint64(31))
    return mixed
