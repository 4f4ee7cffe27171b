"""Forward passes before the engine of ZeRO 3 exists, which gathers the weights that it has cut over the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn


@contextmanager
def gathered_by_module(model: nn.Module) -> Iterator[None]:
    """Gather the weights of each module for its forward pass. Collective. Does nothing for weights that are whole."""
    if not any(hasattr(weight, "ds_id") for weight in model.parameters()):
        yield
        return
    import deepspeed

    open_now: dict[nn.Module, ExitStack] = {}

    def gather(module: nn.Module, _: Any) -> None:
        stack = open_now.setdefault(module, ExitStack())
        stack.enter_context(deepspeed.zero.GatheredParameters(list(module.parameters(recurse=False))))

    def release(module: nn.Module, *_: Any) -> None:
        open_now.pop(module).close()

    own = [module for module in model.modules() if next(module.parameters(recurse=False), None) is not None]
    with ExitStack() as hooks:
        hooks.callback(_close_all, open_now)
        for module in own:
            hooks.callback(module.register_forward_pre_hook(gather).remove)
            hooks.callback(module.register_forward_hook(release).remove)
        yield


def _close_all(stacks: dict[nn.Module, ExitStack]) -> None:
    """After an error, the modules in which it was raised."""
    for stack in stacks.values():
        stack.close()
