"""Exact row-wise Adagrad (Duchi et al. 2011; FBGEMM's EXACT_ROWWISE_ADAGRAD), on only the rows of a step.

The gradients of a row are summed before they are squared:

    squares += mean(gradient^2)
    weights -= learning rate * gradient / (sqrt(squares) + epsilon)

The mean is over a block of `BLOCK_COLUMNS` columns, not over all, so that a table that is cut by columns learns like a whole one.

Rows are found by sorting ids, and summed with one bag per row (docs/design/141 has the alternatives that were tried).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from tuneyard.ranking.tables.placement import BLOCK_COLUMNS, blocks
from tuneyard.ranking.tables.rounding import rounded_to_fp16

_ROWS_IN_CACHE = 8_192
"""Rows that are read and written back at a time, so that they are still in a core's cache."""


def summed(rows: torch.Tensor, bags: torch.Tensor | None, gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [ids] with the gradients [bags, columns] of their bags -> each row once, ascending, with the sum of its gradients.

    `bags`: the bag of each id; None: each id is its own bag. Gradients are added in the order of the ids.
    """
    ascending, order = torch.sort(rows, stable=True)
    once, counts = torch.unique_consecutive(ascending, return_counts=True)
    first = torch.cumsum(counts, 0) - counts
    of_ids = order if bags is None else bags.index_select(0, order)
    return once.long(), functional.embedding_bag(of_ids, gradients, first, mode="sum")


@dataclass(frozen=True)
class Cells:
    """Identifiers of the cells of some rows, for stochastic rounding: see `rounding`."""

    keys: torch.Tensor
    columns: torch.Tensor
    seed: int


def update(
    weights: torch.Tensor,
    squares: torch.Tensor,
    rows: torch.Tensor,
    gradients: torch.Tensor,
    *,
    learning_rate: float,
    epsilon: float,
    share: float = 1.0,
    cells: Cells | None = None,
) -> None:
    """One step of `rows`, without duplicates, in `weights` [all rows, columns] and `squares` [all rows, blocks].

    `gradients` are multiplied by `share`. Rows in fp16 are updated in fp32 and rounded stochastically, which needs `cells`.
    """
    found = _selected(squares, rows).add_(_block_means(gradients), alpha=share**2)
    _replace(squares, rows, found)
    scale = found.sqrt_().add_(epsilon).reciprocal_().mul_(-learning_rate * share)
    step = gradients * _to_columns(scale, gradients.shape[1])
    size = _ROWS_IN_CACHE if weights.device.type == "cpu" else max(len(rows), 1)
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        found = read(weights, rows[part]).add_(step[part])
        if cells is not None:
            columns = cells.columns if cells.columns.dim() == 1 else cells.columns[part]
            found = rounded_to_fp16(found, cells.keys[part], columns, cells.seed)
        weights.index_copy_(0, rows[part], found)


def read(weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Rows of weights in fp32, as bags of one id: torch prefetches the rows of bags."""
    return functional.embedding_bag(rows, weights, torch.arange(len(rows), dtype=rows.dtype, device=rows.device), mode="sum").float()


def _block_means(gradients: torch.Tensor) -> torch.Tensor:
    """Mean of the squares in each block: [rows, columns] -> [rows, blocks]."""
    columns = gradients.shape[1]
    squared = gradients.square()
    if columns <= BLOCK_COLUMNS:
        return squared.mean(1, keepdim=True)
    whole = columns // BLOCK_COLUMNS * BLOCK_COLUMNS
    means = squared[:, :whole].unflatten(1, (-1, BLOCK_COLUMNS)).mean(2)
    return means if whole == columns else torch.cat([means, squared[:, whole:].mean(1, keepdim=True)], dim=1)


def _to_columns(scale: torch.Tensor, columns: int) -> torch.Tensor:
    """[rows, blocks] -> [rows, columns], or a shape that broadcasts to it."""
    return scale if blocks(columns) == 1 else scale.repeat_interleave(BLOCK_COLUMNS, 1)[:, :columns]


def _selected(squares: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """States of rows. One state per row is read as a vector: torch copies single elements of a matrix one by one."""
    return squares.view(-1).index_select(0, rows).unsqueeze(1) if squares.shape[1] == 1 else squares.index_select(0, rows)


def _replace(squares: torch.Tensor, rows: torch.Tensor, found: torch.Tensor) -> None:
    if squares.shape[1] == 1:
        squares.view(-1).scatter_(0, rows, found.view(-1))
    else:
        squares.index_copy_(0, rows, found)
