"""Observes events that the operations of a pass do not show: tensors made from numbers, reads of sizes, hooks on gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_MADE_OF_NUMBERS = {torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor, torch.from_numpy}
"""Functions that make a tensor from Python's numbers."""
_SIZES = {
    torch.Tensor.shape.__get__,
    torch.Tensor.size,
    torch.Tensor.numel,
    torch.Tensor.nelement,
    torch.Tensor.stride,
    torch.Tensor.__len__,
    torch.numel,
}
_DROPOUT = {
    torch.dropout,
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
}


class Watcher(Protocol):
    """The receiver of the observations."""

    def read_size(self, tensor: Any) -> None:
        """Code reads the size of a tensor."""

    def guard(self, tensor: torch.Tensor) -> None:
        """Code hooks into the gradient of a tensor."""


class WithoutDropout(TorchFunctionMode):
    """Turns dropout off."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        given = dict(kwargs or {})
        if func in _DROPOUT:
            return args[0] if args else given["input"]
        if "dropout_p" in given:  # scaled_dot_product_attention
            given["dropout_p"] = 0.0
        return func(*args, **given)


class Watching(TorchFunctionMode):
    """Reports values of tensors made from numbers, reads of weights' sizes, and hooks on gradients to a `Watcher`."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher = watcher

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        given = dict(kwargs or {})
        if func in _MADE_OF_NUMBERS and not any(isinstance(value, torch.Tensor) for value in (*args, *given.values())):
            return func(*args, **given | ({"device": "cpu"} if "device" in given else {}))
        if func is torch.Tensor.new_tensor and len(args) == 2 and not isinstance(args[1], torch.Tensor):
            return torch.tensor(args[1], dtype=given.get("dtype", args[0].dtype))
        if func in _SIZES and args:
            self._watcher.read_size(args[0])
        if func is torch.Tensor.register_hook:
            self._watcher.guard(args[0])
            return None
        return func(*args, **given)
