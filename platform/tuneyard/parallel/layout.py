"""The layout of a tensor on the ranks of a tensor-parallel group: whole, sharded along one dimension, or as summands.

A sharded dimension of size n consists of `segments` equal runs; each rank holds its 1/degree of every run, in order. One segment is torch's
`Shard`. Two are the packed gate and up projection. If batch and heads are merged, there are as many as the batch has rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ParameterOrigin:
    """The value of parameters of one module, and of no other trained tensor."""

    module: str


@dataclass(frozen=True)
class OutputOrigin:
    """Features [start, stop) of the `width` outputs of one linear module; `raw` until they are sliced or reshaped."""

    module: str
    start: int
    stop: int
    width: int
    raw: bool = True


@dataclass(frozen=True)
class TableOrigin:
    """Values that a lookup of `width` features found."""

    module: str
    width: int


Origin = ParameterOrigin | OutputOrigin | TableOrigin


@dataclass(frozen=True)
class Whole:
    """Every rank holds the whole tensor. `constant`: no gradient flows through it; `uniform`: all values along these dimensions are
    equal.
    """

    constant: bool = False
    origin: Origin | None = None
    uniform: frozenset[int] = frozenset()
    zero: bool = False


@dataclass(frozen=True)
class Sharded:
    """`dimension` is cut; `sources` are the linear modules (as patterns) whose sharding led here. `runs`: the sizes of the segments, if
    they differ.
    """

    dimension: int
    segments: int
    sources: frozenset[str]
    runs: tuple[int, ...] = ()

    def fits(self, size: int, degree: int) -> bool:
        """Whether the degree divides each segment of a dimension of `size`."""
        return all(run % degree == 0 for run in self.runs) if self.runs else size % (self.segments * degree) == 0


def in_runs(layout: Sharded, runs: tuple[int, ...]) -> Sharded:
    """The layout of a dimension that consists of `runs`."""
    return replace(layout, segments=len(runs), runs=runs if len(set(runs)) > 1 else ())


@dataclass(frozen=True)
class Partial:
    """Summands: the tensor is the sum of the ranks' tensors."""

    sources: frozenset[str]


Layout = Whole | Sharded | Partial
CONSTANT = Whole(constant=True)
TRAINED = Whole()


class Conflict(Exception):
    """A sharding that does not survive an operation: `sources` need another layout.

    `blocks`: sizes of the runs into which the operation takes the sharded dimension apart; a fused weight with these blocks may work.
    `wants`: module pattern -> decision that would work.
    """

    def __init__(self, reason: str, sources: frozenset[str], *, blocks: tuple[int, ...] = (), wants: tuple[str, str] | None = None) -> None:
        super().__init__(reason)
        self.reason, self.sources, self.blocks, self.wants = reason, sources, blocks, wants


def sources_of(layouts: Sequence[Any]) -> frozenset[str]:
    """The linear modules whose sharding reaches any of the layouts."""
    return frozenset().union(*[layout.sources for layout in layouts if isinstance(layout, Sharded | Partial)])


def local_shape(shape: Shape, layout: Layout, degree: int) -> Shape:
    """The shape on each rank of a tensor of the whole `shape`."""
    if not isinstance(layout, Sharded):
        return shape
    at = layout.dimension
    return (*shape[:at], shape[at] // degree, *shape[at + 1 :])


def groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """The dimensions of `old` and of `new` that a view maps to each other: the finest split into runs with equal products."""
    found: list[tuple[list[int], list[int]]] = []
    left = right = 0
    while left < len(old) or right < len(new):
        ours, theirs = [left] if left < len(old) else [], [right] if right < len(new) else []
        left, right = left + len(ours), right + len(theirs)
        while (mine := math.prod(old[i] for i in ours)) != (other := math.prod(new[i] for i in theirs)):
            if mine < other:
                ours.append(left)
                left += 1
            else:
                theirs.append(right)
                right += 1
        found.append((ours, theirs))
    return found


def viewed(layout: Sharded, old: Shape, new: Shape, degree: int) -> Sharded:
    """The layout after `view(new)`. Raises Conflict if the shards are not runs of one dimension of the new shape."""
    if 0 in old:
        raise Conflict("an empty tensor is reshaped", layout.sources)
    for ours, theirs in groups(old, new):
        if layout.dimension not in ours:
            continue
        if layout.runs:
            if len(theirs) == 1 and new[theirs[0]] == old[layout.dimension]:
                return replace(layout, dimension=theirs[0])
            raise Conflict("blocks of unequal size are reshaped", layout.sources)
        segments = math.prod(old[i] for i in ours if i < layout.dimension) * layout.segments
        before = 1
        for dimension in theirs:
            if segments % before:
                break
            inner, size = segments // before, new[dimension]
            if size > 1 and size % inner == 0 and (size // inner) % degree == 0:
                return replace(layout, dimension=dimension, segments=inner)
            before *= size
        split = " x ".join(str(new[i]) for i in theirs)
        size, count = old[layout.dimension], next((new[i] for i in theirs if new[i] > 1), 1)
        raise Conflict(
            f"{size} features become {split}, which {degree} ranks cannot divide",
            layout.sources,
            blocks=(size // count,) * count if size % count == 0 else (),
        )
    raise Conflict("the sharded dimension is dropped", layout.sources)


def sliced(layout: Sharded, size: int, start: int, stop: int, degree: int, step: int = 1) -> Sharded:
    """The layout of features [start:stop:step] of a sharded dimension. Raises Conflict if ranks would hold unequal or wrong parts."""
    if start == 0 and stop == size and step == 1:
        return layout
    reason = f"features {start} to {stop} of {size} are cut out, across the ranks' shards"
    if layout.runs:
        ends = (0, *itertools.accumulate(layout.runs))
        if step == 1 and start in ends and stop in ends and stop > start:
            return in_runs(layout, layout.runs[ends.index(start) : ends.index(stop)])
        raise Conflict(reason, layout.sources, blocks=_between(start, stop, size))
    run = size // layout.segments
    if step > 1 and start < step and stop == size and (run // degree) % step == 0:
        return layout
    if step == 1 and start % run == 0 and stop % run == 0 and stop > start:
        return replace(layout, segments=(stop - start) // run)
    raise Conflict(reason, layout.sources, blocks=_between(start, stop, size))


def _between(*places: int) -> tuple[int, ...]:
    """The sizes of the runs between places, from 0 on."""
    return tuple(other - one for one, other in itertools.pairwise(sorted({0, *places})))
