"""Tokens per expert of a mixture, counted where the router's choice reaches the experts.

transformers 5 calls the experts of a layer with the chosen experts of each token (`experts(hidden, chosen, weights)`), for every rule of
the router: softmax, sigmoid, groups, a correcting bias. So the choice itself is counted, also for models without a router loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

Loads = npt.NDArray[np.float64]
"""(layers, experts)."""
_NEWEST = 0.05


class ExpertLoad:
    """Counts of one optimizer step on this rank: a row per layer with experts, a column per expert."""

    def __init__(self, model: nn.Module) -> None:
        """Hook into the experts of `model`, in the order of its layers. Layers with fewer experts leave columns at 0."""
        found = [(name, module) for name, module in model.named_modules() if _are_experts(name, module)]
        self._counts: torch.Tensor | None = None
        self._shape = (len(found), max((int(module.num_experts) for _, module in found), default=0))
        self._mask: torch.Tensor | None = None
        self._counting = False
        for layer, (_, module) in enumerate(found):
            module.register_forward_pre_hook(self._hook(layer), with_kwargs=True)

    @classmethod
    def of(cls, model: nn.Module) -> ExpertLoad | None:
        """The counter of a model; None for a dense model."""
        load = cls(model)
        return load if load.layers else None

    @property
    def layers(self) -> int:
        """Layers with experts; 0 for a dense model."""
        return self._shape[0]

    def begin(self, attention_mask: torch.Tensor | None) -> None:
        """Start counting, for a forward pass. `attention_mask` (rows, tokens): 0 where a token is padding; None: no padding."""
        self._mask = None if attention_mask is None else attention_mask.reshape(-1, 1)
        self._counting = True

    def end(self) -> None:
        """Stop counting, before recomputation in the backward pass, and evaluation."""
        self._counting = False

    def take(self) -> torch.Tensor | None:
        """Counts (layers, experts) since the last call, on the device; None without any."""
        counts, self._counts = self._counts, None
        return counts

    def _hook(self, layer: int) -> Any:
        def count(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._counting:
                chosen = next((value for value in (*args[1:], *kwargs.values()) if _is_choice(value)), None)
                if chosen is not None:
                    self._add(layer, chosen.detach())

        return count

    def _add(self, layer: int, chosen: torch.Tensor) -> None:
        """Add the choices of a layer. `chosen`: (tokens, experts per token)."""
        if self._counts is None:
            self._counts = torch.zeros(self._shape, dtype=torch.float32, device=chosen.device)
        counted = torch.ones_like(chosen, dtype=torch.float32)
        if self._mask is not None and self._mask.shape[0] == chosen.shape[0]:
            counted *= self._mask.to(chosen.device)
        self._counts[layer].scatter_add_(0, chosen.reshape(-1).long(), counted.reshape(-1))


def _are_experts(name: str, module: nn.Module) -> bool:
    return name.rpartition(".")[2] == "experts" and isinstance(getattr(module, "num_experts", None), int)


def _is_choice(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and value.dim() == 2


def relative_load(counts: Loads) -> Loads:
    """Counts (layers, experts) -> load over the layer's mean: 1 if tokens are spread evenly."""
    load: Loads = counts * counts.shape[1] / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return load


def busiest(load: Loads) -> float:
    """Load of the busiest expert over the mean, averaged over layers. 1: all experts have equal loads."""
    return float(load.max(axis=1).mean())


def moved(average: list[list[float]], load: Loads) -> list[list[float]]:
    """The moving average over the last steps (about 20), updated with the newest; rounded, because each checkpoint contains it."""
    before = np.asarray(average) if average else load
    found: list[list[float]] = (before + _NEWEST * (load - before)).round(3).tolist()
    return found
