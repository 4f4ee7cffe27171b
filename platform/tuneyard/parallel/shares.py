"""Shares of a parameter on the ranks of a tensor-parallel group: boxes of the whole, in their order in the rank's own tensor.

A parameter is cut along one dimension. That dimension consists of `blocks` (one, or the packed gate and up projections, or queries, keys
and values of unequal size), and each rank holds its share of every block, one after the other. If a block does not divide, the first ranks
hold one index more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

_PACKED = ("packed_colwise", "packed_rowwise")


def base_style(style: str) -> str:
    """A style without the sizes of its blocks."""
    return style.partition(":")[0]


def packed_style(blocks: Sequence[int]) -> str:
    """The style of columns in blocks: `packed_colwise` for two halves, as in transformers; `packed_colwise:3` for three equal ones, and
    `packed_colwise:64,32,32` for blocks of these sizes.
    """
    if len(set(blocks)) > 1:
        return f"packed_colwise:{','.join(map(str, blocks))}"
    return "packed_colwise" if len(blocks) == 2 else f"packed_colwise:{len(blocks)}"


def blocks_of(style: str, size: int) -> tuple[int, ...]:
    """The blocks of a dimension of `size` under a style; their sum differs from `size` if the style is not for it."""
    _, _, sizes = style.partition(":")
    given = tuple(int(each) for each in sizes.split(",")) if sizes else (2,) if style in _PACKED else (1,)
    return given if len(given) > 1 else (size // given[0],) * given[0]


Box = tuple[tuple[int, int], ...]
"""First index and length along each dimension of the whole parameter, as in checkpoints."""


def share_of(size: int, degree: int, rank: int) -> tuple[int, int]:
    """First index and length of a rank's share of `size` indices."""
    least, more = divmod(size, degree)
    return rank * least + min(rank, more), least + (rank < more)


@dataclass(frozen=True)
class Share:
    """The cut of a parameter of the whole `shape` over `degree` ranks: along `dimension` in each of `blocks`, or on every rank (None)."""

    shape: tuple[int, ...]
    degree: int
    dimension: int | None = None
    blocks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.dimension is not None and sum(self.blocks) != self.shape[self.dimension]:
            raise ValueError(f"blocks {self.blocks} are not the {self.shape[self.dimension]} indices of dimension {self.dimension}")

    @property
    def replicated(self) -> bool:
        """Whether every rank holds the whole parameter."""
        return self.dimension is None

    def boxes(self, rank: int) -> tuple[Box, ...]:
        """The parts of the whole that `rank` holds, in their order along the cut dimension of its own tensor."""
        if self.dimension is None:
            return (tuple((0, length) for length in self.shape),)
        found, start = [], 0
        for block in self.blocks:
            first, length = share_of(block, self.degree, rank)
            found.append(tuple((start + first, length) if at == self.dimension else (0, size) for at, size in enumerate(self.shape)))
            start += block
        return tuple(found)

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """The shape of the rank's own tensor."""
        if self.dimension is None:
            return self.shape
        length = sum(box[self.dimension][1] for box in self.boxes(rank))
        return (*self.shape[: self.dimension], length, *self.shape[self.dimension + 1 :])

    def cut(self, whole: torch.Tensor, rank: int) -> torch.Tensor:
        """The rank's own tensor, contiguous, with its own memory. `whole` may be on the meta device."""
        if self.dimension is None:
            return whole
        parts = [whole.narrow(self.dimension, *box[self.dimension]) for box in self.boxes(rank)]
        return torch.cat(parts, self.dimension) if len(parts) > 1 else parts[0].clone(memory_format=torch.contiguous_format)

    def join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The whole tensor from the own tensors of ranks 0, 1, …"""
        if self.dimension is None:
            return parts[0]
        whole = parts[0].new_empty(self.shape)
        for rank, part in enumerate(parts):
            start = 0
            for box in self.boxes(rank):
                first, length = box[self.dimension]
                whole.narrow(self.dimension, first, length).copy_(part.narrow(self.dimension, start, length))
                start += length
        return whole
