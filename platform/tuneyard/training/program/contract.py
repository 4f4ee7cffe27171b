"""The interface of a program: its functions, and the rows and batches that they get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

import torch
from torch import nn

from tuneyard.api import BadInput

COUNT = "count"
"""Key in a batch: the number of things that its loss is a mean over; by default its rows."""


class Row(dict[str, Any]):
    """A row of the data: column -> value, as Arrow gives it (number, text, bytes, list, dict, None).

    `seed`: 63 bits that depend only on the task's seed and the row's place in the stream of all epochs. Random numbers drawn with it are
    the same on any number of workers, and after a resume. A held-out row always has the same seed.
    """

    seed: int = 0

    @classmethod
    def at(cls, values: Mapping[str, Any], *, seed: int, place: str) -> Row:
        row = cls(values)
        row.seed = int.from_bytes(blake2b(f"{seed}/{place}".encode(), digest_size=8).digest(), "little") >> 1
        return row

    def generator(self) -> torch.Generator:
        """A generator seeded with `seed`: for noise, crops, masks, in `collate`."""
        return torch.Generator().manual_seed(self.seed)


class Batch(dict[str, torch.Tensor]):
    """The tensors of `collate`, on the device of the rank. Raises BadInput for an unknown name."""

    def __missing__(self, name: str) -> torch.Tensor:
        raise BadInput(
            f"the program reads batch[{name!r}], and its collate makes {', '.join(sorted(self)) or 'nothing'}",
            f"have collate make {name}, or read one of those",
        )


class Program(Protocol):
    """An object, or a class that is called without arguments. `model` is optional if the task names a model."""

    def model(self) -> nn.Module:
        """A new model. If the task names a model: `model(start)`, with its folder or its Hugging Face name.

        Called once on every rank, on cpu, right after the generators were seeded: all ranks must make the same weights. Parameters with
        `requires_grad` False are not trained.
        """

    def collate(self, rows: Sequence[Row]) -> Mapping[str, torch.Tensor]:
        """Rows -> tensors of one micro-batch, on cpu; the same names, dtypes and numbers of dimensions every time.

        `count` (a whole number or a tensor with one) is the number of things that the loss of this batch is a mean over, if these are not
        its rows: tokens that count, pixels that are not masked.
        """

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The mean loss of a batch, a scalar. `model` is the result of the function `model`; it may be called any number of times.

        The loss of a step is the mean over the global batch, sum(loss * count) / sum(count) over all micro-batches of all ranks. It does
        not depend on how the batch is cut if the loss of a batch is a mean over `count` things. Gradients are on in evaluation too.
        """

    def rollout(self, model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
        """The batch that `loss` gets, after the model has acted on that of `collate`: actions and their rewards, generated texts and their
        marks. Optional. Called once for each micro-batch, at the beginning of a step, with its weights: in evaluation mode, without
        gradients. `count` in the result replaces that of `collate`. It must not change the model.
        """

    def predict(self, model: nn.Module, batch: Batch) -> list[dict[str, Any]]:
        """A dict that JSON can hold for each row of the batch, in order. Metrics and `evaluation.predictions` need it. The model is in
        evaluation mode, without gradients.
        """

    def metrics(self, predictions: Sequence[dict[str, Any]], rows: Sequence[Row]) -> Mapping[str, float]:
        """Figures of all held-out rows, after each evaluation: name -> number, the same names each time, NaN where one is undefined.
        Optional. `predictions` are those of `predict`, in the order of `rows`, with the row's number as `row`. Called on one rank.
        """
