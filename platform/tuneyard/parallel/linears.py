"""Modules whose whole forward is one product with their weight: `nn.Linear`, and classes of other names that compute the same.

GPT-2 keeps weights as [inputs, outputs] in a class of its own, and Falcon writes the product out. A class is not known by its name: its
forward runs on the meta device, and each operation must be a step of `x @ weight.T + bias` or `x @ weight + bias`.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

_KNOWN: WeakKeyDictionary[nn.Module, tuple[Any, int | None]] = WeakKeyDictionary()
_RESHAPES = ("view", "_unsafe_view", "reshape", "alias", "detach")
_TURNS = ("t", "transpose", "permute", "numpy_T")


def outputs_at(module: nn.Module) -> int | None:
    """The dimension of a linear's weight that its outputs are: 0 for [outputs, inputs] as in `nn.Linear`, 1 for [inputs, outputs]. None
    for a module that computes anything else.
    """
    if "forward" in vars(module) or "weight" not in module._parameters:
        return None
    if isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward:
        return 0
    if not _could_be(module):
        return None
    weight = module._parameters["weight"]
    key = (type(module).forward, tuple(weight.shape) if weight is not None else (), module._parameters.get("bias") is None)
    if module not in _KNOWN or _KNOWN[module][0] != key:
        _KNOWN[module] = key, _traced(module)
    return _KNOWN[module][1]


def features_of(module: nn.Module) -> tuple[int, int]:
    """Inputs and outputs of a linear."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    weight = module._parameters["weight"]
    assert weight is not None
    at = outputs_at(module) or 0
    return weight.shape[1 - at], weight.shape[at]


def _could_be(module: nn.Module) -> bool:
    """Whether a module has a matrix, at most a vector beside it, and nothing else."""
    own, extra = module._parameters, set(module._parameters) - {"weight", "bias"}
    weight, bias = own["weight"], own.get("bias")
    if extra or type(weight) is not nn.Parameter or weight.ndim != 2 or not weight.is_floating_point():
        return False
    plain = not module._modules and not module._buffers and not isinstance(module, nn.Embedding)
    return plain and (bias is None or (type(bias) is nn.Parameter and bias.ndim == 1))


def _traced(module: nn.Module) -> int | None:
    weight = module._parameters["weight"]
    assert weight is not None
    for at in (0, 1):
        found = _Trace(module, at).run()
        if found == at:
            return at
    return None


class _Trace(TorchDispatchMode):
    """What each tensor of a forward pass is, as long as all of its operations are steps of a linear."""

    def __init__(self, module: nn.Module, at: int) -> None:
        super().__init__()
        self._module, self._outputs_at = module, at
        self._is: dict[int, str] = {}
        self._kept: list[torch.Tensor] = []

    def run(self) -> int | None:
        """The dimension of the outputs, or None."""
        was = dict(self._module._parameters)
        blank = {name: _blank(each) for name, each in was.items()}
        weight = blank["weight"]
        assert weight is not None
        x = torch.empty((2, 3, weight.shape[1 - self._outputs_at]), dtype=weight.dtype, device="meta")
        for name, tensor in (("x", x), ("weight", weight), ("bias", blank.get("bias"))):
            if tensor is not None:
                self._note(tensor, name)
        try:
            self._module._parameters.update(blank)
            with torch.no_grad(), self:
                result = type(self._module).forward(self._module, x)
        except Exception:  # noqa: BLE001  whatever it does with such inputs, it is no linear
            return None
        finally:
            self._module._parameters.update(was)
        wanted = "result" if blank.get("bias") is not None else "product"
        shaped = isinstance(result, torch.Tensor) and result.shape == (2, 3, weight.shape[self._outputs_at])
        return self._outputs_at if shaped and self._is.get(id(result)) == wanted else None

    def _note(self, tensor: torch.Tensor, kind: str) -> None:
        self._kept.append(tensor)  # keeps ids unique
        self._is[id(tensor)] = kind

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        kind = self._step(func.overloadpacket.__name__, args, kwargs or {}, found)
        if kind is None:
            raise ValueError(f"{func} is no step of a linear")
        self._note(found, kind)
        return found

    def _step(self, name: str, args: Any, kwargs: Any, found: Any) -> str | None:
        """What the result of an operation is, or None."""
        read = [self._is.get(id(each)) for each in args if isinstance(each, torch.Tensor)]
        if kwargs or None in read:
            return None
        if name in _RESHAPES and len(read) == 1:
            kept = found.shape == args[0].shape if read[0] in ("weight", "turned", "bias") else found.shape[-1] == args[0].shape[-1]
            return read[0] if kept else None
        if name in _TURNS and read in (["weight"], ["turned"]) and found.shape == args[0].shape[::-1]:
            return "turned" if read == ["weight"] else "weight"
        right = "turned" if self._outputs_at == 0 else "weight"
        if name == "mm" and read == ["x", right]:
            return "product"
        if name == "addmm" and read == ["bias", "x", right]:
            return "result"
        return "result" if name == "add" and len(args) == 2 and read in (["product", "bias"], ["bias", "product"]) else None


def _blank(tensor: torch.Tensor | None) -> nn.Parameter | None:
    return None if tensor is None else nn.Parameter(torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"))
