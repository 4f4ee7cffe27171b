"""From a record batch of a table to flat rows. Stored and streamed rows are made here, and nowhere else, so that they are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch

from tuneyard.ranking.batches import batch_of
from tuneyard.ranking.config import RankerConfig


@dataclass(frozen=True)
class Flattening:
    """What a ranker reads of a table. `slices`: further columns, by whose values held-out rows are judged apart."""

    config: RankerConfig
    slices: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Of the table, each once."""
        config = self.config
        return list(dict.fromkeys([*config.dense, *(feature.name for feature in config.sparse), *config.tasks, *self.slices]))

    @property
    def about(self) -> dict[str, Any]:
        """All that flat rows depend on beside the files, as JSON can hold it."""
        sparse = [[feature.name, feature.rows, feature.texts] for feature in self.config.sparse]
        columns = {"dense": self.config.dense, "sparse": sparse, "labels": self.config.tasks}
        return {"config": columns, "slices": list(self.slices)}

    def flat(self, read: pa.RecordBatch, first_row: int) -> tuple[pa.RecordBatch, dict[str, torch.Tensor]]:
        """The columns of the ranker, and its batch of these rows. `first_row`: number of the first row in the table, for errors.

        Raises BadInput as `batch_of`.
        """
        return read, batch_of(read, self.config, first_row=first_row)
