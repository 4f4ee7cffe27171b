"""A model whose forward pass takes a slice of each row, and attends over whole rows together with the other ranks of its context group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from transformers import PreTrainedModel

from tuneyard.api import BadInput
from tuneyard.parallel.context.attention import ATTENTION, Row, Spans, check_heads, register
from tuneyard.parallel.context.exchange import Group, gathered_tokens, summed_slices
from tuneyard.parallel.context.row_slice import LONGEST, MASK, SPANS


class ContextParallel:
    """The context group of this rank, and the rows of the current forward pass."""

    def __init__(self, group: Group) -> None:
        """`group`: the ranks that share rows, in the order of their slices."""
        self.group = group
        self.ranks, self.index = dist.get_world_size(group), dist.get_rank(group)
        self._spans: Spans | None = None
        self._longest: int | None = None
        self._bases: list[Any] = []

    def prepare(self, model: Any) -> None:
        """Make `model`, or the model under its adapter, take slices from `row_slice`. Several models may take them, one after the other.

        Raises BadInput if its attention does not use transformers' attention interface, or its heads do not divide.
        """
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        if not base._can_set_attn_implementation():
            raise BadInput(
                f"attention of a {base.config.model_type} model cannot be exchanged: it does not call transformers' attention interface",
                "set strategy.contextParallel to 1",
            )
        heads = getattr(base.config.get_text_config(), "num_attention_heads", None)
        if isinstance(heads, int):
            check_heads(heads, self.ranks)
        register(self._row)
        self._bases.append(base)
        _set_attention(base, ATTENTION)
        model.register_forward_pre_hook(self._take_row, with_kwargs=True)
        for module in base.modules():
            if hasattr(module, "rope_type"):
                module.register_forward_pre_hook(self._with_longest, with_kwargs=True)
                module.register_forward_hook(self._without_longest)

    @contextmanager
    def whole_rows(self) -> Iterator[None]:
        """Inside the context, the models take whole rows, as on one device."""
        self._attend_by("sdpa")
        try:
            yield
        finally:
            self._attend_by(ATTENTION)

    def _attend_by(self, implementation: str) -> None:
        for base in self._bases:
            _set_attention(base, implementation)

    def gathered(self, slices: torch.Tensor) -> torch.Tensor:
        """(rows, tokens of a slice, ...) -> (rows, tokens of the row, ...)."""
        return gathered_tokens(slices, self.group)

    def summed(self, part: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks of what each has computed from its slice."""
        return summed_slices(part, self.group)

    def own(self, rows: torch.Tensor) -> torch.Tensor:
        """(rows, tokens of the row, ...) -> this rank's slice of the tokens."""
        return rows.chunk(self.ranks, dim=1)[self.index]

    def _take_row(self, _model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._spans = kwargs.pop(SPANS, None)
        self._longest = kwargs.pop(LONGEST, None)
        kwargs.pop(MASK, None)
        return args, kwargs

    def _with_longest(self, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Append the longest position to those of the slice. The frequencies of some rotary embeddings depend on it (dynamic NTK,
        LongRoPE), and the slice may lack it.
        """
        if self._longest is None:
            return args, kwargs
        longest = self._longest

        def longer(name: str, positions: Any) -> Any:
            if name != "position_ids" or positions.dim() != 2:
                return positions
            return torch.cat([positions, torch.full_like(positions[:, :1], longest)], dim=1)

        names = ("x", "position_ids")
        found = tuple(longer(name, value) for name, value in zip(names, args, strict=False))
        return (*found, *args[len(found) :]), {name: longer(name, value) for name, value in kwargs.items()}

    def _without_longest(self, _module: Any, _args: tuple[Any, ...], made: Any) -> Any:
        if self._longest is None:
            return None
        return tuple(each[:, :-1] for each in made) if isinstance(made, tuple) else made[:, :-1]

    def _row(self) -> Row:
        return Row(self.group, self.ranks, self._spans)


def _set_attention(model: Any, implementation: str) -> None:
    """For the model, and for modules that have a copy of its configuration."""
    model.set_attn_implementation(implementation)
    own = {id(module.config) for module in model.modules() if isinstance(module, PreTrainedModel)}
    for module in model.modules():
        config = vars(module).get("config")
        if hasattr(config, "_attn_implementation") and id(config) not in own:
            config._attn_implementation = implementation
