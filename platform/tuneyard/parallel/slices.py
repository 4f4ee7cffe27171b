"""Forwards of layers and blocks under a `SequencePlan`: they slice the tokens, gather them, and slice them again.

Slices may be unequal, and empty. A recomputed layer gathers again, so only a slice is kept for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tuneyard.api import BadInput
from tuneyard.parallel.adapters import planned_names
from tuneyard.parallel.collectives import TensorGroup, gathered, sliced
from tuneyard.parallel.sequence import Place, SequencePlan
from tuneyard.parallel.shares import share_of

_TOKENS = 1
"""The dimension of tokens: [rows, tokens, features]."""


@dataclass
class Region:
    """The layers of one model: their group, and the number of tokens of the rows in them."""

    group: TensorGroup
    tokens: int = 0

    def whole(self, x: torch.Tensor) -> torch.Tensor:
        """All tokens, from each rank's slice."""
        own = share_of(self.tokens, self.group.size, self.group.rank)[1]
        if x.shape[_TOKENS] != own:
            raise RuntimeError(f"a slice of {self.tokens} tokens has {own} on this rank, and this one has {x.shape[_TOKENS]}")
        return gathered(x, self.group, _TOKENS, self.tokens)

    def slice(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's slice of all tokens."""
        if x.shape[_TOKENS] != self.tokens:
            raise RuntimeError(f"rows of {self.tokens} tokens became {x.shape[_TOKENS]} inside a block")
        return sliced(x, self.group, _TOKENS)


@dataclass
class BlockForward:
    """The forward of a block: `inner` on whole rows."""

    region: Region
    given: tuple[Place, ...]
    results: tuple[int | None, ...]
    inner: Callable[..., Any]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        given, named = _changed(arguments, keywords, self.given, self.region.whole)
        result = self.inner(*given, **named)
        for place in self.results:
            result = _at(result, place, self.region.slice)
        return result


@dataclass
class FirstForward:
    """The forward of the first layer, which gets whole rows."""

    region: Region
    place: Place
    inner: Callable[..., Any]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        given, named = _changed(arguments, keywords, (self.place,), self._slice)
        return self.inner(*given, **named)

    def _slice(self, x: torch.Tensor) -> torch.Tensor:
        self.region.tokens = x.shape[_TOKENS]
        return self.region.slice(x)


@dataclass
class LastForward:
    """The forward of the last layer, which returns whole rows."""

    region: Region
    result: int | None
    inner: Callable[..., Any]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return _at(self.inner(*arguments, **keywords), self.result, self.region.whole)


def slice_tokens(model: nn.Module, plan: SequencePlan, group: TensorGroup) -> None:
    """Give layers and blocks their forwards. PEFT's LoRA may wrap the model. From here on the model refuses to return hidden states, which
    would be slices.
    """
    model.register_forward_pre_hook(_refuse_hidden_states, with_kwargs=True)
    region = Region(group)
    names = {own: name for name, own in planned_names(model).items()}
    for own, block in plan.blocks.items():
        module = _module(model, names[own])
        module.forward = BlockForward(region, block.given, block.results, module.forward)
    first, last = _module(model, names[plan.first]), _module(model, names[plan.last])
    first.forward = FirstForward(region, plan.place, first.forward)
    last.forward = LastForward(region, plan.result, last.forward)


def _refuse_hidden_states(model: Any, _: Any, keywords: dict[str, Any]) -> None:
    """Raises BadInput if a caller asks for the hidden states of each layer."""
    config = getattr(model, "config", None)
    if keywords.get("output_hidden_states") or getattr(config, "output_hidden_states", False):
        raise BadInput("hidden states are slices of the tokens under sequence parallelism", "leave output_hidden_states out")


def _module(model: nn.Module, name: str) -> Any:
    return model.get_submodule(name)


def _changed(
    arguments: tuple[Any, ...], keywords: dict[str, Any], places: tuple[Place, ...], change: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with those at `places` changed. The same tensor in two places is changed once."""
    given, named, done = list(arguments), dict(keywords), dict[int, torch.Tensor]()
    for place in places:
        held: Any = given if isinstance(place, int) else named
        key = id(held[place])
        if key not in done:
            done[key] = change(held[place])
        held[place] = done[key]
    return given, named


def _at(result: Any, place: int | None, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The result with the tensor at `place` changed."""
    if place is None:
        return change(result)
    parts = [change(part) if index == place else part for index, part in enumerate(result)]
    return type(result)(parts)
