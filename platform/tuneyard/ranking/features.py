"""From a batch of columns to embeddings: dense numbers, bags of categories, and sequences.

A batch is a dict of tensors: `dense` [rows, numbers] in fp32, where NaN is a number that is missing; and for each sparse feature
`NAME.ids` [ids of all rows] with `NAME.offsets` [rows + 1], as Arrow lays lists out. A row without ids has an embedding of zeros.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from tuneyard.ranking.config import RankerConfig, SparseFeature

_SPREAD = -7046029254386353131
"""SplitMix64's increment (Steele et al. 2014) as a signed number: its multiples are spread over 64 bits."""
_SHIFT = 24


def hashed(ids: torch.Tensor, rows: int) -> torch.Tensor:
    """Ids within a table: those outside of it are hashed into it, equally on every machine; the others stay."""
    mixed = ids * _SPREAD
    mixed = torch.bitwise_xor(mixed, torch.bitwise_right_shift(mixed, _SHIFT)) * _SPREAD
    return torch.where((ids >= 0) & (ids < rows), ids, torch.remainder(torch.bitwise_right_shift(mixed, _SHIFT), rows))


class DenseFeatures(nn.Module):  # type: ignore[misc]
    """Numbers -> one embedding each: the signed logarithm of a number scales a vector, and a missing number has a vector of its own."""

    def __init__(self, numbers: int, width: int) -> None:
        super().__init__()
        self.scale, self.shift, self.missing = (nn.Parameter(torch.empty(numbers, width)) for _ in range(3))
        for weight in (self.scale, self.shift, self.missing):
            nn.init.normal_(weight, std=width**-0.5)

    def forward(self, dense: torch.Tensor) -> torch.Tensor:
        """[rows, numbers] -> [rows, numbers, width]."""
        known = torch.isfinite(dense).unsqueeze(-1)
        number = torch.nan_to_num(dense, nan=0.0, posinf=0.0, neginf=0.0)
        scaled = (number.sign() * number.abs().log1p()).unsqueeze(-1)
        return torch.where(known, scaled * self.scale + self.shift, self.missing)


class Bag(nn.Module):  # type: ignore[misc]
    """Ids of a row -> one embedding: their mean or sum."""

    def __init__(self, feature: SparseFeature, width: int) -> None:
        super().__init__()
        self.rows = feature.rows
        self.table = nn.EmbeddingBag(feature.rows, width, mode=feature.pooling, include_last_offset=True)
        nn.init.normal_(self.table.weight, std=width**-0.5)

    def forward(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """[ids], [rows + 1] -> [rows, width]."""
        found: torch.Tensor = self.table(hashed(ids, self.rows), offsets)
        return found


class Sequence(nn.Module):  # type: ignore[misc]
    """The last ids of a row, in order -> one embedding: attention of a learned query over ids and their distance from the end."""

    def __init__(self, feature: SparseFeature, width: int) -> None:
        super().__init__()
        self.rows, self.length = feature.rows, feature.length
        self.table = nn.Embedding(feature.rows, width)
        self.places = nn.Parameter(torch.empty(feature.length, width))
        self.query = nn.Parameter(torch.empty(width))
        self.value = nn.Linear(width, width)
        for weight in (self.table.weight, self.places, self.query):
            nn.init.normal_(weight, std=width**-0.5)

    def forward(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """[ids], [rows + 1] -> [rows, width]."""
        back = torch.arange(self.length, device=ids.device)
        at = offsets[1:, None] - 1 - back  # the last id first
        inside = at >= offsets[:-1, None]
        padded = functional.pad(ids, (0, 1))  # a batch may have no id at all
        found = self.table(hashed(padded[torch.where(inside, at, padded.shape[0] - 1)], self.rows)) + self.places
        scores = (found * self.query).sum(-1).masked_fill(~inside, torch.finfo(found.dtype).min)
        pooled = (scores.softmax(-1).unsqueeze(-1) * self.value(found)).sum(1)
        return pooled * inside.any(1, keepdim=True)


class FeatureLayer(nn.Module):  # type: ignore[misc]
    """All features of a batch as embeddings [rows, features, width], dense ones first."""

    def __init__(self, config: RankerConfig) -> None:
        super().__init__()
        self.names = tuple(feature.name for feature in config.sparse)
        self.dense = DenseFeatures(len(config.dense), config.width) if config.dense else None
        self.sparse = nn.ModuleList(
            Sequence(feature, config.width) if feature.length else Bag(feature, config.width) for feature in config.sparse
        )

    @property
    def outputs(self) -> int:
        """Embeddings of a row."""
        return len(self.names) + (0 if self.dense is None else self.dense.scale.shape[0])

    def forward(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        found = [
            module(batch[f"{name}.ids"], batch[f"{name}.offsets"]).unsqueeze(1)
            for name, module in zip(self.names, self.sparse, strict=True)
        ]
        dense = [] if self.dense is None else [self.dense(batch["dense"])]
        return torch.cat([*dense, *found], dim=1)
