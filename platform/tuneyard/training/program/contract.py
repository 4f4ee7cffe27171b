"""What a program is: the four functions, and the rows and batches that they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

import torch
from torch import nn

from tuneyard.api import BadInput

COUNT = "count"
"""Of a batch: how many things its loss is a mean over; its rows, where `collate` says nothing."""


class Row(dict[str, Any]):
    """A row of the data: column -> value, as Arrow gives it (number, text, bytes, list, dict, None).

    `seed`: 63 bits that depend on the task's seed and the row's place in the stream of all epochs alone, so that what is drawn with it is
    the same on any number of workers, and after a resume; of a held-out row always the same.
    """

    seed: int = 0

    @classmethod
    def at(cls, values: Mapping[str, Any], *, seed: int, place: str) -> Row:
        row = cls(values)
        row.seed = int.from_bytes(blake2b(f"{seed}/{place}".encode(), digest_size=8).digest(), "little") >> 1
        return row

    def generator(self) -> torch.Generator:
        """A generator that starts from `seed`: for noise, crops, masks, in `collate`."""
        return torch.Generator().manual_seed(self.seed)


class Batch(dict[str, torch.Tensor]):
    """What `collate` made, on the device of the rank. Raises BadInput for a name that it did not make."""

    def __missing__(self, name: str) -> torch.Tensor:
        raise BadInput(
            f"the program reads batch[{name!r}], and its collate makes {', '.join(sorted(self)) or 'nothing'}",
            f"have collate make {name}, or read one of those",
        )


class Program(Protocol):
    """An object, or a class that is called without arguments. `model` may be missing where the task names one."""

    def model(self) -> nn.Module:
        """A new model; where the task names a model, `model(start)` with its folder, or its Hugging Face name.

        Called once on every rank, on cpu, right after the generators were seeded: all ranks must make the same weights. What has
        `requires_grad` False is not trained.
        """

    def collate(self, rows: Sequence[Row]) -> Mapping[str, torch.Tensor]:
        """Rows -> tensors of one micro-batch, on cpu; the same names, dtypes and numbers of dimensions every time.

        `count` (a whole number or a tensor with one) says how many things the loss of this batch is a mean over, where these are not its
        rows: tokens that count, pixels that are not masked.
        """

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The mean loss of a batch, a scalar. `model` is the one that `model` made; it may be called any number of times.

        The loss of a step is the mean over the global batch, sum(loss * count) / sum(count) over all micro-batches of all ranks: it does
        not depend on how the batch was cut, if the loss of a batch is a mean over `count` things. Gradients are on in evaluation too.
        """

    def predict(self, model: nn.Module, batch: Batch) -> list[dict[str, Any]]:
        """A dict that JSON can hold for each row of the batch, in order; only asked for by `evaluation.predictions`. The model is in
        evaluation mode, without gradients."""
