"""DHEN: layers of ensembles of interaction modules (Zhang et al. 2022, section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tuneyard.ranking.config import EnsembleLayer, RankerConfig
from tuneyard.ranking.features import FeatureLayer
from tuneyard.ranking.interactions import MODULES, Mixing
from tuneyard.ranking.tables.tables import Tables
from tuneyard.ranking.tables.whole import WholeTables


class Ensemble(nn.Module):  # type: ignore[misc]
    """Norm(Ensemble(modules) + ShortCut), equation 2: the modules' joined embeddings plus the input, which is mixed if the numbers of
    embeddings differ. The weights of a weighted sum begin at 1.
    """

    def __init__(self, layer: EnsembleLayer, inputs: int, width: int) -> None:
        super().__init__()
        self.outputs, self.joins = layer.joined, layer.ensemble
        self.parts = nn.ModuleList(MODULES[name](inputs, layer.outputs, width) for name in layer.modules)
        self.weights = nn.Parameter(torch.ones(len(layer.modules))) if layer.ensemble == "weighted_sum" else None
        self.shortcut = nn.Identity() if self.outputs == inputs else Mixing(inputs, self.outputs, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, inputs, width] -> [rows, outputs, width]."""
        normed: torch.Tensor = self.norm(self._together(x) + self.shortcut(x))
        return normed

    def _together(self, x: torch.Tensor) -> torch.Tensor:
        if self.joins == "concatenation":
            return torch.cat([part(x) for part in self.parts], dim=1)
        # One part at a time: backward then holds the gradient of one part, not of all.
        together: torch.Tensor | None = None
        for at, part in enumerate(self.parts):
            one = part(x) if self.weights is None else part(x) * self.weights[at]
            together = one if together is None else together + one
        assert together is not None
        return together


class Ranker(nn.Module):  # type: ignore[misc]
    """Features, ensembles, and a network on top with one logit per task. `tables`: by default whole ones, which are its parameters."""

    def __init__(self, config: RankerConfig, tables: Tables | None = None) -> None:
        super().__init__()
        self.config = config
        self.recompute = False
        """Whether the backward pass recomputes each layer, instead of keeping its inner activations."""
        self.features = FeatureLayer(config, WholeTables(config) if tables is None else tables)
        inputs = self.features.outputs
        self.layers = nn.ModuleList()
        for layer in config.layers:
            self.layers.append(made := Ensemble(layer, inputs, config.width))
            inputs = made.outputs
        sizes = [inputs * config.width, *config.hidden]
        steps = [step for size, wider in pairwise(sizes) for step in (nn.Linear(size, wider), nn.ReLU())]
        self.head = nn.Sequential(*steps, nn.Linear(sizes[-1], len(config.tasks)))

    def forward(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Logits [rows, tasks] of a batch (see `features`)."""
        x = self.features(batch).to(self.head[-1].weight.dtype)  # sharded tables stay in fp32
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute and torch.is_grad_enabled() else layer(x)
        logits: torch.Tensor = self.head(x.flatten(1))
        return logits
