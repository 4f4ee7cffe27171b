"""From a record batch of a table to flat rows: read columns, transform them, and make tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch

from tuneyard.data.tables import Pipeline
from tuneyard.ranking.batches import tensors_of
from tuneyard.ranking.config import RankerConfig
from tuneyard.ranking.row_hashes import Hashes, row_hashes
from tuneyard.ranking.transforms import schema_of, transformed

_NUMBER = "\0number"
"""A further column with the number of each row, to find the rows that sampling has kept."""


@dataclass(frozen=True)
class Flattening:
    """The ranker's view of a table. `slices`: further columns, whose values divide held-out rows into slices.

    `steps`: the ranker's transforms, with sampling included for training rows.
    """

    config: RankerConfig
    steps: Pipeline
    slices: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Columns of the transformed rows, each once."""
        return list(dict.fromkeys([*self.config.features, *self.config.tasks, *self.slices]))

    @property
    def columns(self) -> list[str]:
        """Columns of the table, each once."""
        return list(self.steps.reads(self.names))

    @property
    def about(self) -> dict[str, Any]:
        """Everything beside the files that flat rows depend on, for JSON."""
        config = self.config
        sparse = [[feature.name, feature.rows, feature.texts] for feature in config.sparse]
        columns = {"dense": config.dense, "sparse": sparse, "labels": config.tasks, "text_inputs": dict(config.text_inputs)}
        return {"config": columns, "transforms": self.steps.model_dump_json(), "slices": list(self.slices)}

    def schema(self, read: pa.Schema) -> pa.Schema:
        """The schema of a table's transformed rows. Raises BadInput for types that a step does not take."""
        return schema_of(read, self.steps, self.names, self.config.text_inputs)

    def flat(self, read: pa.RecordBatch, first_row: int) -> tuple[pa.RecordBatch, dict[str, torch.Tensor]]:
        """The transformed columns, and the ranker's batch of these rows. Sampling may drop rows. `first_row`: number of the first row in
        the table, for errors.

        Raises BadInput like `batch_of`.
        """
        numbers = range(first_row, first_row + read.num_rows)
        if not self.steps.samples:
            made = transformed(read, self.steps, self.names, self.config.text_inputs)
            return made, tensors_of(made, self.config, numbers=numbers)
        numbered = read.append_column(_NUMBER, pa.array(numbers, pa.int64()))
        made = transformed(numbered, self.steps, self.names, self.config.text_inputs)
        return made, tensors_of(made, self.config, numbers=made.column(_NUMBER).to_numpy())

    def hashes(self, read: pa.RecordBatch) -> Hashes:
        """A hash of the features of each row that sampling leaves, as if no step normalized them: the statistics of training rows must not
        decide which rows are held out. Raises BadInput like `flat`.
        """
        rows = read
        if self.steps.samples:
            numbered = read.append_column(_NUMBER, pa.array(range(read.num_rows), pa.int64()))
            rows = read.take(self.steps.making([_NUMBER]).run(numbered).column(_NUMBER))
        plain = self.steps.unscaled.without_sampling
        return row_hashes(tensors_of(transformed(rows, plain, self.config.features, self.config.text_inputs), self.config, labels=False))
