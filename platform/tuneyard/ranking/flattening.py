"""From a record batch of a table to flat rows: columns that are read, transformed, and made into tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch

from tuneyard.data.tables import Pipeline
from tuneyard.ranking.batches import tensors_of
from tuneyard.ranking.config import RankerConfig
from tuneyard.ranking.transforms import schema_of, transformed

_NUMBER = "\0number"
"""A column with the number of each row, beside those of the table: it tells which rows a sampling has left."""


@dataclass(frozen=True)
class Flattening:
    """What a ranker reads of a table. `slices`: further columns, by whose values held-out rows are judged apart.

    `steps`: the ranker's transforms, with sampling among them where rows are to train on.
    """

    config: RankerConfig
    steps: Pipeline
    slices: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Of the transformed rows, each once."""
        return list(dict.fromkeys([*self.config.features, *self.config.tasks, *self.slices]))

    @property
    def columns(self) -> list[str]:
        """Of the table, each once."""
        return list(self.steps.reads(self.names))

    @property
    def about(self) -> dict[str, Any]:
        """All that flat rows depend on beside the files, as JSON can hold it."""
        config = self.config
        sparse = [[feature.name, feature.rows, feature.texts] for feature in config.sparse]
        columns = {"dense": config.dense, "sparse": sparse, "labels": config.tasks, "text_inputs": dict(config.text_inputs)}
        return {"config": columns, "transforms": self.steps.model_dump_json(), "slices": list(self.slices)}

    def schema(self, read: pa.Schema) -> pa.Schema:
        """Of the transformed rows of a table. Raises BadInput for types that a step does not take."""
        return schema_of(read, self.steps, self.names, self.config.text_inputs)

    def flat(self, read: pa.RecordBatch, first_row: int) -> tuple[pa.RecordBatch, dict[str, torch.Tensor]]:
        """The transformed columns, and the ranker's batch of these rows, which are fewer where a step samples. `first_row`: number of the
        first row in the table, for errors.

        Raises BadInput as `batch_of`.
        """
        numbers = range(first_row, first_row + read.num_rows)
        if not self.steps.samples:
            made = transformed(read, self.steps, self.names, self.config.text_inputs)
            return made, tensors_of(made, self.config, numbers=numbers)
        numbered = read.append_column(_NUMBER, pa.array(numbers, pa.int64()))
        made = transformed(numbered, self.steps, self.names, self.config.text_inputs)
        return made, tensors_of(made, self.config, numbers=made.column(_NUMBER).to_numpy())
