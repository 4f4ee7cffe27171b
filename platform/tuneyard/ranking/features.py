"""From a batch of columns to embeddings: dense numbers, bags of categories, and sequences.

A batch is a dict of tensors: `dense` [rows, numbers] in fp32, where NaN is a missing number; and for each sparse feature `NAME.ids` [ids of
all rows] with `NAME.offsets` [rows + 1], in Arrow's layout of lists. A row without ids has an embedding of zeros.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from tuneyard.ranking.config import RankerConfig
from tuneyard.ranking.tables.ids import last_places
from tuneyard.ranking.tables.tables import Tables


class DenseFeatures(nn.Module):  # type: ignore[misc]
    """Numbers -> one embedding each: the signed logarithm of a number scales a vector. A missing number has its own vector."""

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


class SequenceHead(nn.Module):  # type: ignore[misc]
    """The embeddings of a sequence -> one embedding, by attention of a learned query over them and their distance from the end."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.length = length
        self.places = nn.Parameter(torch.empty(length, width))
        self.query = nn.Parameter(torch.empty(width))
        self.value = nn.Linear(width, width)
        for weight in (self.places, self.query):
            nn.init.normal_(weight, std=width**-0.5)

    def forward(self, found: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """[rows, length, width], the last id first, and [rows + 1] -> [rows, width]."""
        _, inside = last_places(offsets, self.length)
        placed = found.to(self.places.dtype) + self.places
        scores = (placed * self.query).sum(-1).masked_fill(~inside, torch.finfo(placed.dtype).min)
        pooled = (scores.softmax(-1).unsqueeze(-1) * self.value(placed)).sum(1)
        return pooled * inside.any(1, keepdim=True)


class FeatureLayer(nn.Module):  # type: ignore[misc]
    """All features of a batch as embeddings [rows, features, width], dense ones first.

    `tables`: a module that looks up the embeddings of ids.
    """

    def __init__(self, config: RankerConfig, tables: Tables) -> None:
        super().__init__()
        self.names = tuple(feature.name for feature in config.sparse)
        self.dense = DenseFeatures(len(config.dense), config.width) if config.dense else None
        self.tables = tables
        self.heads = nn.ModuleList(
            SequenceHead(feature.length, config.width) if feature.length else nn.Identity() for feature in config.sparse
        )

    @property
    def outputs(self) -> int:
        """Embeddings of a row."""
        return len(self.names) + (0 if self.dense is None else self.dense.scale.shape[0])

    def forward(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        finish = self.tables.begin(batch)
        made = [] if self.dense is None else [self.dense(batch["dense"])]  # during the exchange of embeddings
        for name, head, found in zip(self.names, self.heads, finish(), strict=True):
            one = head(found, batch[f"{name}.offsets"]) if isinstance(head, SequenceHead) else found
            made.append(one.unsqueeze(1))
        return torch.cat(made, dim=1)
