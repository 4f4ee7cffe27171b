"""Equal numbers of calls of a model on all ranks. Under ZeRO-3 a call gathers weights from all ranks: one more on some rank would wait for
ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from tuneyard.api import BadInput
from tuneyard.training.distributed import World


@contextmanager
def even_calls(model: nn.Module, world: World, what: str) -> Iterator[None]:
    """Under ZeRO-3, raises BadInput on every rank if the code inside calls the model more often on some rank than on others. Calls of its
    modules alone are not counted.
    """
    if world.size == 1 or not any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        yield
        return

    def agree(is_call: bool) -> None:
        calls = torch.tensor(float(is_call), device=world.device)
        dist.all_reduce(calls)
        if 0 < calls < world.size:
            raise BadInput(
                f"{what} calls the model more often on some ranks than on others, and under ZeRO-3 all ranks hold parts of its weights",
                "call it the same number of times for any rows (a fixed length, or generate of transformers), or set strategy.zero to 2",
            )

    # Before DeepSpeed's own hook, which gathers weights.
    handle = model.register_forward_pre_hook(lambda *_: agree(True), prepend=True)
    try:
        yield
    finally:
        handle.remove()
    agree(False)
