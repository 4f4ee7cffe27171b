"""Batches of rows of a table, by their places in the endless stream of all epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from tuneyard.data.order import Positions, RowOrder
from tuneyard.ranking.flat_accesses import CountedRows
from tuneyard.training.program.contract import COUNT

_BLOCK = 16_384
"""Places whose rows are computed at once: the order takes as long for 256 places as for some thousands."""


@dataclass(frozen=True)
class OrderInBlocks:
    """The rows at places of an order, computed in blocks of places. Steps read places in ascending order, so one block is cached."""

    order: RowOrder
    _kept: dict[int, Positions] = field(default_factory=dict, compare=False, repr=False)

    def at_each(self, places: Positions) -> Positions:
        if len(places) >= _BLOCK:
            return self.order.at_each(places)
        numbers = places // _BLOCK
        found = np.empty_like(places)
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            found[chosen] = self._block(number)[places[chosen] - number * _BLOCK]
        return found

    def _block(self, number: int) -> Positions:
        if number not in self._kept:
            self._kept.clear()
            self._kept[number] = self.order.at_each(np.arange(number * _BLOCK, (number + 1) * _BLOCK, dtype=np.int64))
        return self._kept[number]


class TableRows(Protocol):
    """Rows of a table for batches: stored or streamed."""

    def __len__(self) -> int: ...

    @property
    def ids_per_row(self) -> dict[str, float]:
        """Mean number of ids in a row, by sparse feature: the same on every rank and in every attempt."""

    @property
    def counted(self) -> CountedRows:
        """Rows whose ids are counted before training."""

    def batch(self, numbers: Sequence[int] | npt.NDArray[np.int64]) -> dict[str, torch.Tensor]: ...


RowsT = TypeVar("RowsT", bound=TableRows)


@dataclass(frozen=True)
class BatchesOfRows(Generic[RowsT]):
    """A map-style data set whose `__getitems__` makes a whole batch at once. `order` None: held-out rows in stored order, or a stream,
    which finds its rows by their places itself.
    """

    rows: RowsT
    order: OrderInBlocks | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return self.__getitems__([place])

    def __getitems__(self, places: Sequence[int]) -> dict[str, Any]:
        numbers = np.asarray(places, dtype=np.int64)
        batch: dict[str, Any] = dict(self.rows.batch(numbers if self.order is None else self.order.at_each(numbers)))
        return batch | {COUNT: torch.tensor(len(numbers)), "tokens": [1] * len(numbers), "squares": 0}


def as_made(batch: dict[str, Any]) -> dict[str, Any]:
    """The collator: batches are already complete."""
    return batch
