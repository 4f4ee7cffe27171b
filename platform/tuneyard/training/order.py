"""The rows of a rank at each step, as a pure function of the step: the order does not depend on workers, and a resume sets a cursor.

The rows of all epochs form one endless stream; epoch e is the permutation of the rows under (seed, e). With a global batch of G, step k
takes rows k*G … (k+1)*G - 1 of the stream. Rank r takes the r-th of W equal slices of them, micro-batch after micro-batch. Every step is a
full batch: the last batch of a run is filled from the next permutation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RowsAt = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]
"""Positions in the endless stream -> rows: `tuneyard.data.order.RowOrder.at_each`."""
_STEPS_AT_ONCE, _ROWS_AT_ONCE = 64, 4096
"""The order is computed for this many steps at once, and for this many rows at most."""


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The micro-batches of one rank, as lists of rows, from step `start` to step `stop`. A torch batch sampler."""

    rows_at: RowsAt
    micro_batch: int
    grad_accum: int
    rank: int
    workers: int
    start: int
    stop: int

    @property
    def global_batch(self) -> int:
        return self.micro_batch * self.grad_accum * self.workers

    def __len__(self) -> int:
        """All micro-batches of the run, including those before `start`: transformers counts steps by it."""
        return self.stop * self.grad_accum

    def __iter__(self) -> Iterator[list[int]]:
        steps = max(1, min(_STEPS_AT_ONCE, _ROWS_AT_ONCE // (self.grad_accum * self.micro_batch)))
        for first in range(self.start, self.stop, steps):
            yield from self._rows(first, min(first + steps, self.stop))

    def micro(self, step: int, micro: int) -> list[int]:
        """Rows of micro-batch `micro` of this rank in step `step` (from 0)."""
        first = step * self.global_batch + (self.rank * self.grad_accum + micro) * self.micro_batch
        rows: list[int] = self.rows_at(np.arange(first, first + self.micro_batch, dtype=np.int64)).tolist()
        return rows

    def _rows(self, first: int, end: int) -> list[list[int]]:
        """Rows of the micro-batches of this rank in steps `first` to `end` - 1."""
        in_step = self.grad_accum * self.micro_batch
        starts = np.arange(first, end, dtype=np.int64) * self.global_batch + self.rank * in_step
        rows = self.rows_at((starts[:, None] + np.arange(in_step)).ravel())
        found: list[list[int]] = rows.reshape(-1, self.micro_batch).tolist()
        return found


def evaluation_batches(rows: int, micro_batch: int, rank: int, workers: int) -> list[list[int]]:
    """Rows of each evaluation batch of this rank. Every rank gets the same number of batches, as collectives require; some may be empty."""
    batches = [list(range(first, min(first + micro_batch, rows))) for first in range(0, rows, micro_batch)]
    padded = batches + [[] for _ in range(-len(batches) % workers)]
    return padded[rank::workers]
