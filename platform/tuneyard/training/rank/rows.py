"""Batches of rows of a table, by their places in the endless stream of all epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from tuneyard.data.order import RowOrder
from tuneyard.training.program.contract import COUNT


class TableRows(Protocol):
    """Rows of a table that become batches: stored or streamed."""

    def __len__(self) -> int: ...

    @property
    def ids_per_row(self) -> dict[str, float]:
        """Mean number of ids in a row, by sparse feature: the same on every rank and in every attempt."""

    def batch(self, numbers: Sequence[int] | npt.NDArray[np.int64]) -> dict[str, torch.Tensor]: ...


RowsT = TypeVar("RowsT", bound=TableRows)


@dataclass(frozen=True)
class BatchesOfRows(Generic[RowsT]):
    """A map-style data set whose `__getitems__` makes a whole batch at once. `order` None: held-out rows, as they lie, or a stream, which
    finds its rows by their places itself."""

    rows: RowsT
    order: RowOrder | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return self.__getitems__([place])

    def __getitems__(self, places: Sequence[int]) -> dict[str, Any]:
        numbers = np.asarray(places, dtype=np.int64)
        batch: dict[str, Any] = dict(self.rows.batch(numbers if self.order is None else self.order.at_each(numbers)))
        return batch | {COUNT: torch.tensor(len(numbers)), "tokens": [1] * len(numbers), "squares": 0}


def as_made(batch: dict[str, Any]) -> dict[str, Any]:
    """The collator: batches come whole."""
    return batch
