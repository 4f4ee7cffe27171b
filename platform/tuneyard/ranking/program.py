"""A ranker as a program of `train.program`: trained with the order, checkpoints, layouts and report of every program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from tuneyard.ranking.batches import LABELS, batch_of_rows
from tuneyard.ranking.config import RankerConfig
from tuneyard.ranking.ranker import Ranker


class RankerProgram:
    """The four functions of a program, for one config. The loss is the mean log loss over rows and tasks."""

    def __init__(self, config: RankerConfig) -> None:
        self.config = config

    def model(self) -> Ranker:
        return self.config.build()

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        return batch_of_rows(rows, self.config)

    def loss(self, model: Ranker, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return binary_cross_entropy_with_logits(model(batch), batch[LABELS])

    def predict(self, model: Ranker, batch: Mapping[str, torch.Tensor]) -> list[dict[str, Any]]:
        """The probability of each task."""
        probabilities = model(batch).sigmoid().tolist()
        return [dict(zip(self.config.tasks, row, strict=True)) for row in probabilities]
