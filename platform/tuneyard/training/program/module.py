"""The module that is trained: its forward pass is the program's loss.

DDP and DeepSpeed expect one forward pass of the wrapped module, then one backward pass. Inside that forward pass a program may call its
model any number of times, also by functional_call, and take gradients of its own (MAML). Those stay on the rank; only the gradient of the
loss is reduced.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tuneyard.api import BadInput
from tuneyard.training.program.blame import blamed
from tuneyard.training.program.contract import Batch
from tuneyard.training.program.loading import Loaded

MODEL_PREFIX = "model."
"""Prefix of the parameter names of the program's own model."""


class WholeWeights(TorchFunctionMode):
    """Refuses operations on weights that ZeRO-3 has cut: outside of their module's forward they are empty, and a sum over them is 0.

    A program that reads or replaces weights itself (a penalty on their norm, functional_call) would otherwise silently compute a wrong
    result.
    """

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") not in _OF_DEEPSPEED and any(_is_cut(each) for each in _tensors(args, kwargs)):
            raise BadInput(
                f"{self._what} reads weights outside of their module's forward ({getattr(func, '__name__', func)}), and under ZeRO-3 "
                "they are not whole there",
                "set strategy.zero to 2 or lower, or use these weights inside of a forward alone",
            )
        return func(*args, **kwargs)


_OF_DEEPSPEED = frozenset(
    {"__get__", "__set__", "__delete__", "numel", "size", "dim", "stride", "data_ptr", "__hash__", "is_floating_point"}
)
"""Operations of DeepSpeed's hooks on weights that they gather and cut."""


def _tensors(args: Any, kwargs: Any) -> Iterator[Any]:
    for each in (*args, *kwargs.values()):
        yield from (each if isinstance(each, list | tuple) else (each,))


def _is_cut(value: Any) -> bool:
    return isinstance(value, nn.Parameter) and getattr(value, "ds_numel", 0) > 0 and value.data.numel() == 0


class ProgramModule(nn.Module):
    """Called with a batch: returns its loss, or what another function of the program makes of it."""

    def __init__(self, loaded: Loaded, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._loaded = [loaded]  # in a list: a program may be a module itself, and must not be trained as a part of this one
        self._watched: set[tuple[str, bool]] = set()

    @property
    def loaded(self) -> Loaded:
        return self._loaded[0]

    def forward(self, batch: dict[str, Any], function: Literal["loss", "predict", "rollout"] = "loss") -> Any:
        """Raises BadInput for a loss that is no scalar with a gradient."""
        given = Batch(batch)
        if function != "loss":
            with self._watching(function), blamed(f"{function} of {self.loaded.name}", self.loaded.folder):
                return getattr(self.loaded.program, function)(self.model, given)
        # In evaluation too: a loss may take gradients of its own. The outer wrappers see none, and prepare no reduction.
        with torch.enable_grad(), self._watching("loss"), blamed(f"loss of {self.loaded.name}", self.loaded.folder):
            loss = self.loaded.program.loss(self.model, given)
        self._check(loss)
        return loss.reshape(()) if torch.is_grad_enabled() else loss.detach().reshape(())

    def _watching(self, function: str) -> AbstractContextManager[Any]:
        """Under ZeRO-3, check the first call of a function for reads of absent weights."""
        known = (function, self.training)
        if known in self._watched or not any(hasattr(parameter, "ds_id") for parameter in self.model.parameters()):
            return nullcontext()
        self._watched.add(known)
        return WholeWeights(f"{function} of {self.loaded.name}")

    def _check(self, loss: Any) -> None:
        name = self.loaded.name
        if not torch.is_tensor(loss):
            raise BadInput(f"loss of {name} returned {_kind(loss)}, and not a tensor", "return the mean loss of the batch as a tensor")
        if loss.numel() != 1:
            raise BadInput(
                f"loss of {name} returned a tensor of shape {list(loss.shape)}, and not a scalar",
                "return its mean (loss.mean()); where that is not a mean over rows, have collate give the number of things as count",
            )
        if not loss.is_floating_point():
            raise BadInput(
                f"loss of {name} is a {loss.dtype}, and no floating-point number", "return the loss itself, not a count of errors"
            )
        if not loss.requires_grad:
            raise BadInput(
                f"loss of {name} depends on no trained parameter: it has no gradient",
                "compute it from the result of model(…), without detach(), item() or no_grad(); see requires_grad of the parameters",
            )


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
