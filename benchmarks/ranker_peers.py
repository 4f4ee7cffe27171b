"""DLRM and DCN-v2 after their papers, on the features of `tuneyard.ranking`: peers of the ensembles in ranker_ensembles.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import nn

from tuneyard.ranking.config import RankerConfig
from tuneyard.ranking.features import FeatureLayer
from tuneyard.ranking.tables.whole import WholeTables


def network(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers from the first size to the last, with a ReLU after each."""
    return nn.Sequential(*(step for size, wider in pairwise(sizes) for step in (nn.Linear(size, wider), nn.ReLU())))


def _features(config: RankerConfig) -> FeatureLayer:
    return FeatureLayer(config, WholeTables(config))


class DLRM(nn.Module):  # type: ignore[misc]
    """Naumov et al. 2019, section 2: a bottom network makes one embedding of all dense numbers; the dot products of all pairs of
    embeddings, beside the bottom network's output, go to the top network. Dense numbers enter as their signed logarithms, as in the
    paper's code for Criteo's data, and 0 where they are missing.
    """

    def __init__(self, config: RankerConfig, hidden: int) -> None:
        super().__init__()
        self.features = _features(replace(config, dense=()))
        self.bottom = network([len(config.dense), hidden, config.width]) if config.dense else None
        embeddings = len(config.sparse) + bool(config.dense)
        self.pairs: torch.Tensor
        self.register_buffer("pairs", torch.tril_indices(embeddings, embeddings, offset=-1), persistent=False)
        products = embeddings * (embeddings - 1) // 2
        top = products + (config.width if config.dense else 0)
        self.top = nn.Sequential(network([top, hidden, hidden]), nn.Linear(hidden, len(config.tasks)))

    def forward(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Logits [rows, tasks]."""
        embeddings = self.features(batch)
        if self.bottom is not None:
            dense = torch.nan_to_num(batch["dense"], nan=0.0)
            bottom = self.bottom(dense.sign() * dense.abs().log1p())
            embeddings = torch.cat([bottom.unsqueeze(1), embeddings], dim=1)
        products = torch.bmm(embeddings, embeddings.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        logits: torch.Tensor = self.top(products if self.bottom is None else torch.cat([bottom, products], dim=1))
        return logits


class CrossLayer(nn.Module):  # type: ignore[misc]
    """x0 * (W x + b) + x with a full W (Wang et al. 2021, equation 1)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.map = nn.Linear(size, size)

    def forward(self, first: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        crossed: torch.Tensor = first * self.map(x) + x
        return crossed


class DCNv2(nn.Module):  # type: ignore[misc]
    """Wang et al. 2021, section 3: full-rank cross layers over all embeddings as one vector, and a deep network of two layers, which
    follows them (stacked) or reads the same embeddings beside them (parallel)."""

    def __init__(self, config: RankerConfig, hidden: int, *, crosses: int, stacked: bool) -> None:
        super().__init__()
        self.features = _features(config)
        size = self.features.outputs * config.width
        self.stacked = stacked
        self.crosses = nn.ModuleList(CrossLayer(size) for _ in range(crosses))
        self.deep = network([size, hidden, hidden])
        self.head = nn.Linear(hidden if stacked else hidden + size, len(config.tasks))

    def forward(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Logits [rows, tasks]."""
        first = x = self.features(batch).flatten(1)
        for cross in self.crosses:
            x = cross(first, x)
        logits: torch.Tensor = self.head(self.deep(x) if self.stacked else torch.cat([x, self.deep(first)], dim=1))
        return logits
