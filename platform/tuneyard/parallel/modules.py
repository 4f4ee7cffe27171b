"""What is told of a module by looking at it: its name without numbers, whether it is a plain linear or lookup, and who hooks into it."""

from __future__ import annotations

import re

from torch import nn

BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")


def pattern(name: str) -> str:
    """`layers.3.mlp` -> `layers.*.mlp`: numbers between dots stand for every layer, as in transformers' plans."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", name)


def is_linear(module: nn.Module) -> bool:
    """A module whose whole forward is `x @ weight.T + bias`; subclasses and objects that compute something else are not."""
    plain = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward and "forward" not in vars(module)
    return plain and "weight" in module._parameters


def hooked(model: nn.Module) -> set[str]:
    """Modules (as patterns) with hooks of their own, or on their parameters: these see whole tensors only."""
    return {
        pattern(name)
        for name, module in model.named_modules()
        if gradient_hooks(module) or module._forward_hooks or module._forward_pre_hooks
    }


def gradient_hooks(module: nn.Module) -> bool:
    """Whether code sees the gradients of a module's own results or weights."""
    own = any(getattr(module, hooks) for hooks in BACKWARD_HOOKS)
    return own or any(weight._backward_hooks or weight._post_accumulate_grad_hooks for weight in module.parameters(recurse=False))


def is_embedding(module: nn.Module) -> bool:
    """A lookup table with no other parameter; a subclass may scale what it finds."""
    plain = isinstance(module, nn.Embedding) and "forward" not in vars(module)
    return plain and [name for name, _ in module.named_parameters()] == ["weight"]


def experts_of(model: nn.Module) -> dict[str, dict[str, nn.Parameter]]:
    """Modules that hold weights of three dimensions [experts, …, …], with these weights by name."""
    found = {
        name: {own: weight for own, weight in module.named_parameters(recurse=False) if weight.ndim == 3 and min(weight.shape) > 1}
        for name, module in model.named_modules()
    }
    return {name: weights for name, weights in found.items() if weights}
