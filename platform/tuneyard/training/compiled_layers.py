"""torch.compile of a model's decoder layers, each by itself (regional compilation, as in torchtitan).

Layers of one kind share one compilation, so that the depth of the model adds nothing to a start. Embeddings, the head with its loss, and
hooks of engines stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import nn

from tuneyard.api import BadInput

_VARIANTS = 32
"""Compilations of one piece of code, by kinds of layers and widths of rows. torch goes on without compilation above its limit, of 8."""


@contextmanager
def compiled_layers(model: nn.Module) -> Iterator[None]:
    """Within the block, each decoder layer is compiled at its first pass. Raises BadInput for a model whose layers cannot be compiled."""
    from torch._dynamo import config
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

    layers = _layers_of(model)
    # DeepSpeed's import switches compilation off (see zero_stack), and torch reads the switch once.
    with config.patch(disable=False, recompile_limit=_VARIANTS, fail_on_recompile_limit_hit=True):
        for layer in layers:
            layer.compile()
        try:
            yield
        except FailOnRecompileLimitHit as error:
            raise _refusal(f"they take more than {_VARIANTS} forms") from error
        except TorchDynamoException as error:
            raise _refusal((str(error).strip().splitlines() or [type(error).__name__])[0][:300]) from error
        finally:
            for layer in layers:
                layer._compiled_call_impl = None
            torch._dynamo.reset()  # the next run in this process has the whole limit


def uncompiled() -> AbstractContextManager[None]:
    """Within the block, compiled layers compute as they are written: a row that is looked at once is not worth a compilation."""
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance


def _refusal(why: str) -> BadInput:
    return BadInput(f"the layers of this model cannot be compiled: {why}", "set strategy.compile to none")


def _layers_of(model: nn.Module) -> list[nn.Module]:
    """The list of modules with the most weights: decoder layers, whatever their name."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    largest = max(lists, key=lambda each: sum(weight.numel() for weight in each.parameters()), default=None)
    if largest is None:
        raise _refusal("it has no list of layers")
    return list(largest)
