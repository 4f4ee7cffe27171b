"""Properties of a module: its name without numbers, whether it is a plain linear or lookup, and its hooks."""

from __future__ import annotations

import re

from torch import nn

from tuneyard.parallel.linears import outputs_at

BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")


def pattern(name: str) -> str:
    """`layers.3.mlp` -> `layers.*.mlp`: numbers between dots stand for every layer, as in transformers' plans."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", name)


def is_linear(module: nn.Module) -> bool:
    """Whether a module's whole forward is one product with its weight, and its bias added. Objects with another computation are
    excluded, whatever their class is called.
    """
    return outputs_at(module) is not None


def is_torch_linear(module: nn.Module) -> bool:
    """Whether a linear is torch's own, which every engine knows how to cut."""
    return isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward


def hooked(model: nn.Module) -> set[str]:
    """Modules (as patterns) with hooks on themselves or on their parameters: hooks must see whole tensors."""
    return {
        pattern(name)
        for name, module in model.named_modules()
        if gradient_hooks(module) or module._forward_hooks or module._forward_pre_hooks
    }


def gradient_hooks(module: nn.Module) -> bool:
    """Whether hooks see the gradients of a module's own results or weights."""
    own = any(getattr(module, hooks) for hooks in BACKWARD_HOOKS)
    return own or any(weight._backward_hooks or weight._post_accumulate_grad_hooks for weight in module.parameters(recurse=False))


def is_embedding(module: nn.Module) -> bool:
    """Whether a module is a lookup table without other parameters. A subclass may scale its result."""
    plain = isinstance(module, nn.Embedding) and "forward" not in vars(module)
    return plain and [name for name, _ in module.named_parameters()] == ["weight"]


def experts_of(model: nn.Module) -> dict[str, dict[str, nn.Parameter]]:
    """Modules with weights of three dimensions [experts, …, …], and these weights by name."""
    found = {
        name: {own: weight for own, weight in module.named_parameters(recurse=False) if weight.ndim == 3 and min(weight.shape) > 1}
        for name, module in model.named_modules()
    }
    return {name: weights for name, weights in found.items() if weights}
