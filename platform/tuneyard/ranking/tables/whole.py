"""Tables of one process, with a parameter for each: for training as a program, saving, loading and serving."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from tuneyard.ranking.config import RankerConfig, SparseFeature
from tuneyard.ranking.tables.ids import hashed, last_places
from tuneyard.ranking.tables.initial import initialise
from tuneyard.ranking.tables.names import table_names


class WholeTables(nn.Module):  # type: ignore[misc]
    """Whole tables, see `Tables`. `seed`: of the weights; by default the last seed of torch's own generator."""

    def __init__(self, config: RankerConfig, seed: int | None = None) -> None:
        super().__init__()
        self._features = config.sparse
        self._names = table_names([feature.name for feature in config.sparse])
        seed = torch.initial_seed() if seed is None else seed
        for feature in config.sparse:
            weight = nn.Parameter(torch.empty(feature.rows, config.width))
            initialise(weight, seed=seed, table=feature.name, shape=(feature.rows, config.width))
            self.register_parameter(self._names[feature.name], weight)

    def begin(self, batch: Mapping[str, torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
        return partial(self.forward, batch)

    def forward(self, batch: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        return [self._found(feature, batch[f"{feature.name}.ids"], batch[f"{feature.name}.offsets"]) for feature in self._features]

    def _found(self, feature: SparseFeature, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        table = self.get_parameter(self._names[feature.name])
        if not feature.length:
            rows = hashed(ids, feature.rows)
            return functional.embedding_bag(rows, table, offsets, mode=feature.pooling, include_last_offset=True)
        places, inside = last_places(offsets, feature.length)
        padded = functional.pad(ids, (0, 1))  # a batch may have no id at all
        found = functional.embedding(hashed(padded[torch.where(inside, places, padded.shape[0] - 1)], feature.rows), table)
        return found * inside.unsqueeze(-1)
