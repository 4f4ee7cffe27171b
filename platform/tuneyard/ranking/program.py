"""A ranker as a program of `train.program`, with the order, checkpoints, layouts and report of every program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from tuneyard.ranking.batches import LABELS, batch_of_rows
from tuneyard.ranking.config import RankerConfig
from tuneyard.ranking.ranker import Ranker


class RankerProgram:
    """The four functions of a program, for one config. The loss is the mean log loss over rows and tasks.

    `negative_rate`: the share w of the rows with label 0 that are kept. Among the kept rows the odds of label 1 are 1/w times those of all
    rows (He et al. 2014, section 6.3). So the loss adds -log w to the logit, and the ranker itself predicts for all rows.
    """

    def __init__(self, config: RankerConfig, negative_rate: float = 1.0) -> None:
        self.config = config
        self._log_rate = math.log(negative_rate)

    def model(self) -> Ranker:
        return self.starting(self.config.build())

    def starting(self, ranker: Ranker) -> Ranker:
        """The same ranker, with an initial prediction of one half for the kept rows."""
        with torch.no_grad():
            ranker.head[-1].bias += self._log_rate
        return ranker

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        return batch_of_rows(rows, self.config)

    def loss(self, model: Ranker, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return binary_cross_entropy_with_logits(model(batch) - self._log_rate, batch[LABELS])

    def predict(self, model: Ranker, batch: Mapping[str, torch.Tensor]) -> list[dict[str, Any]]:
        """The probability of each task."""
        probabilities = model(batch).sigmoid().tolist()
        return [dict(zip(self.config.tasks, row, strict=True)) for row in probabilities]
