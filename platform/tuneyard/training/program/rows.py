"""Rows by their place in the stream, and micro-batches that the program's collate makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tuneyard.api import BadInput
from tuneyard.data.order import RowOrder
from tuneyard.training.program.blame import blamed
from tuneyard.training.program.contract import COUNT, Row
from tuneyard.training.program.loading import Loaded

RESERVED = ("tokens", "squares")
"""Names that the account of a batch uses."""


@dataclass(frozen=True)
class RowsInOrder:
    """A map-style data set from places in the endless stream of all epochs to rows. `order` None: held-out rows, in stored order."""

    rows: Any
    seed: int
    order: RowOrder | None = None

    @property
    def datasets(self) -> tuple[Any, ...]:
        """The rows, which may have to be made before they are counted."""
        return (self.rows,)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Row:
        return self.__getitems__([place])[0]

    def __getitems__(self, places: Sequence[int]) -> list[Row]:
        numbers = list(places) if self.order is None else self.order.at_each(np.asarray(places, dtype=np.int64)).tolist()
        kind = "held out" if self.order is None else "train"
        return [Row.at(self.rows[number], seed=self.seed, place=f"{kind}/{place}") for place, number in zip(places, numbers, strict=True)]


@dataclass(frozen=True)
class ProgramCollator:
    """Rows -> a checked batch, with the account of every batch of the trainer: rows, and `count`."""

    loaded: Loaded

    def __call__(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Raises BadInput if collate fails, or returns anything but named tensors."""
        name = self.loaded.name
        advice = "make all tensors of a batch equally long: pad or cut the rows in collate"
        with blamed(f"collate of {name}", self.loaded.folder, advice):
            made = self.loaded.program.collate(list(rows))
        return {**checked_batch(made, len(rows), f"collate of {name}"), "tokens": [1] * len(rows), "squares": 0}


def checked_batch(made: Any, count: float, what: str) -> dict[str, torch.Tensor]:
    """The tensors that a function of a program has made, with `count`, which stands where it says none. Raises BadInput for anything but
    named tensors without gradients.
    """
    if not isinstance(made, Mapping) or not made:
        raise BadInput(f"{what} returned {type(made).__name__}, and not a dict of tensors", "return {'inputs': tensor, …}")
    batch = dict(made)
    count = _count(batch.pop(COUNT, count), what)
    for key, value in batch.items():
        _check(key, value, what)
    return {**batch, COUNT: torch.tensor(int(count) if count.is_integer() else count)}


def _check(key: Any, value: Any, what: str) -> None:
    if not isinstance(key, str) or key in RESERVED:
        raise BadInput(f"{what} names a tensor {key!r}", f"take another name: {', '.join(RESERVED)} are reserved")
    if isinstance(value, list | tuple) and value and all(torch.is_tensor(each) for each in value):
        shapes = ", ".join(str(list(each.shape)) for each in value[:3])
        raise BadInput(f"{what} returned {key} as {len(value)} tensors ({shapes} …)", "pad them to one length, and stack them")
    if not torch.is_tensor(value):
        raise BadInput(f"{what} returned {key} as {type(value).__name__}, and not as a tensor", "torch.tensor(…) makes one")
    if value.requires_grad:
        raise BadInput(f"{what} returned {key} with a gradient", "compute trained values in loss, and detach the rest")


def _count(value: Any, what: str) -> float:
    number = value.item() if torch.is_tensor(value) and value.numel() == 1 else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < float("inf"):
        raise BadInput(
            f"{what} returned count as {number!r}",
            "count is the number of things that the loss is a mean over: one number, 0 or more",
        )
    return float(number)
