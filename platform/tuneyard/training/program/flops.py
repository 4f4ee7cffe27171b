"""Model FLOPs of a micro-batch, counted by torch while it is computed: no formula knows a model that it has never seen.

torch counts products, convolutions and attention, forward and backward, a multiplication and an addition as two FLOPs, as the formulas of
the catalog do; element-wise work and table look-ups count as nothing. A batch of shapes that were counted before is not counted again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from tuneyard.training.program.generators import kept_generators

_REMEMBERED = 256
"""Kinds of batches that are counted; later ones count as the mean of these."""

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class FlopAccount:
    """FLOPs by the shapes of a batch, or by what `by` answers of it. A program whose work depends on values, and not on shapes alone, is
    counted by its first batch."""

    def __init__(self, by: Callable[[Mapping[str, Any]], Hashable] | None = None) -> None:
        self._by = by or shapes_of
        self._known: dict[Hashable, float] = {}
        self._is_closed = False

    @contextmanager
    def counting(self, batch: Mapping[str, Any]) -> Iterator[None]:
        """Count what is computed inside, unless a batch of these shapes was counted."""
        shapes = self._by(batch)
        if self._is_closed or shapes in self._known or len(self._known) >= _REMEMBERED:
            yield
            return
        with FlopCounterMode(display=False) as counter:
            yield
        self._known[shapes] = float(counter.get_total_flops())

    def count(self, module: Any, made: Mapping[str, Any]) -> None:
        """Count a batch on a module that is whole and not wrapped, for one that will be cut: later batches count as this one."""
        device = next(module.parameters()).device
        batch = {name: value.to(device) for name, value in made.items() if torch.is_tensor(value)}
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        with kept_generators(), self.counting(batch):
            torch.autograd.grad(module(batch), trained, allow_unused=True)
        self._is_closed = True

    def of(self, batch: Mapping[str, Any]) -> float:
        """Forward and backward of a batch."""
        return self._known.get(self._by(batch), sum(self._known.values()) / max(1, len(self._known)))


def shapes_of(batch: Mapping[str, Any]) -> Shapes:
    return tuple(sorted((name, tuple(value.shape)) for name, value in batch.items() if torch.is_tensor(value)))
