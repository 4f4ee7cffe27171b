"""Model FLOPs of a micro-batch, counted by torch while it runs, because the model is unknown to every formula.

torch counts products, convolutions and attention, forward and backward, with a multiplication and an addition as two FLOPs, like the
formulas of the catalog. Element-wise work and table look-ups count as nothing. Each combination of batch shapes is counted once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from tuneyard.training.generators import kept_generators

_REMEMBERED = 256
"""Shape combinations that are counted; later ones get their mean."""

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class FlopAccount:
    """FLOPs by the shapes of a batch, or by the key that `by` gives it. If work depends on values and not only on shapes, the first batch
    decides.
    """

    def __init__(self, by: Callable[[Mapping[str, Any]], Hashable] | None = None) -> None:
        self._by = by or shapes_of
        self._known: dict[Hashable, float] = {}
        self._is_closed = False

    @contextmanager
    def counting(self, batch: Mapping[str, Any]) -> Iterator[None]:
        """Count the code inside, unless a batch of these shapes was counted before."""
        shapes = self._by(batch)
        if self._is_closed or shapes in self._known or len(self._known) >= _REMEMBERED:
            yield
            return
        with FlopCounterMode(display=False) as counter:
            yield
        self._known[shapes] = float(counter.get_total_flops())

    def count(self, module: Any, made: Mapping[str, Any]) -> None:
        """Count a batch on a whole, unwrapped module, before it is cut. Later batches use this count."""
        device = next(module.parameters()).device
        batch = {name: value.to(device) for name, value in made.items() if torch.is_tensor(value)}
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        with kept_generators(), self.counting(batch):
            torch.autograd.grad(module(batch), trained, allow_unused=True)
        self.close()

    def close(self) -> None:
        """Count no further batch: later ones get the mean of those that were counted."""
        self._is_closed = True

    def of(self, batch: Mapping[str, Any]) -> float:
        """FLOPs of forward and backward of a batch."""
        return self._known.get(self._by(batch), sum(self._known.values()) / max(1, len(self._known)))


def shapes_of(batch: Mapping[str, Any]) -> Shapes:
    return tuple(sorted((name, tuple(value.shape)) for name, value in batch.items() if torch.is_tensor(value)))
