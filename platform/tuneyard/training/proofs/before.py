"""The proofs before the engine exists: weights and positions are checked, and weights that no text reaches are frozen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from tuneyard import data
from tuneyard.training.distributed import World
from tuneyard.training.models import DTYPES
from tuneyard.training.proofs.finite import refuse_broken_weights
from tuneyard.training.proofs.limit import late_before, limit_before, within
from tuneyard.training.proofs.positions import bound_streams, check_positions, longest_sample
from tuneyard.training.proofs.reach import MOST_TOKENS, freeze_unreached
from tuneyard.training.request import TrainRequest

_TOKENS = 48


@dataclass(frozen=True)
class Before:
    """`tokens`: of the longest row to test. `ids`: of a row of the data, for the comparison after the last step."""

    tokens: int
    ids: list[int]
    warnings: tuple[str, ...]
    seconds: float


def prove_before(model: Any, prepared: data.Prepared, request: TrainRequest, world: World) -> Before:
    """Prove a model that is loaded, and has its adapter. Collective. Raises BadInput, and JobFailed if it hangs."""
    longest = longest_sample(prepared, request.task.data.max_length)
    limit = limit_before(model, longest, world.device)
    return within(limit, lambda: _proven(model, prepared, longest, request, world), late_before(limit), world.device)


def _proven(model: Any, prepared: data.Prepared, longest: int, request: TrainRequest, world: World) -> Before:
    began = time.perf_counter()
    plan, device = request.plan, world.device
    tokens, warnings = min(longest, MOST_TOKENS), list[str | None]()
    if plan.offload_parameters != "nvme":  # weights on a disk cannot be gathered before the engine exists
        _place(model, request, device)
        refuse_broken_weights(model, request.model_uri, world)
        with torch.autocast(device.type, DTYPES[plan.precision], enabled=plan.precision != "fp32" and plan.zero == 0):
            warnings = [check_positions(model, longest, device), freeze_unreached(model, tokens, device)]
            bound_streams(model, prepared, request.task.data.max_length, device)
    # Tokens of the data: others may stand for images and sounds, which a model asks for.
    ids = [int(token) for token in prepared.train[0]["input_ids"][:_TOKENS]]
    return Before(tokens, ids, tuple(filter(None, warnings)), round(time.perf_counter() - began, 3))


def _place(model: Any, request: TrainRequest, device: torch.device) -> None:
    """Put the weights, or what ZeRO 3 leaves whole, where the trainer will want them."""
    if request.plan.zero == 3:
        for module in model.modules():
            module._buffers |= {name: each if each is None else each.to(device) for name, each in module._buffers.items()}
    elif request.task.method.qlora is None:
        model.to(device)
