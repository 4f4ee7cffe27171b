"""Checks of a program before its first step: equal weights and batches on all ranks, a loss that reaches all parameters, and a loss that is
a mean over `count`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from tuneyard.api import BadInput
from tuneyard.training.distributed import World, gather_objects
from tuneyard.training.generators import kept_generators
from tuneyard.training.program.contract import COUNT, Row
from tuneyard.training.program.module import ProgramModule
from tuneyard.training.program.rows import checked_batch

_SHOWN = 3
_NOISE = 1e-3
"""Relative change of the loss that counts as noise from the order of additions."""


def refuse_differing_weights(world: World, model: nn.Module, name: str) -> None:
    """Collective. Raises BadInput on every rank if `model()` made different weights on some rank."""
    own = [(key, tuple(value.shape), str(value.dtype), float(value.detach().double().sum())) for key, value in model.state_dict().items()]
    for rank, other in enumerate(gather_objects(world, own)):
        if repr(other) != repr(own) or [entry[:3] for entry in other] != [entry[:3] for entry in own]:
            differing = next((mine[0] for mine, theirs in zip(own, other, strict=False) if repr(mine) != repr(theirs)), "their number")
            raise BadInput(
                f"model of {name} made other weights on rank {rank} than on rank {world.rank} (first: {differing})",
                "draw weights from torch's generators alone, which are seeded on every rank before model is called",
            )


def refuse_differing_batches(world: World, batches: Sequence[dict[str, Any]], what: str) -> None:
    """Collective. Raises BadInput on every rank if `what` (collate, rollout) makes other names, dtypes or numbers of dimensions on some
    rank, or in some micro-batch of the first step.
    """
    kinds = [_kinds(batch) for batch in batches]
    for rank, others in enumerate(gather_objects(world, kinds)):
        for other in others:
            if other != kinds[0]:
                mine, theirs = set(kinds[0].items()), set(other.items())
                differing = ", ".join(sorted({key for key, _ in mine ^ theirs}))
                raise BadInput(
                    f"{what} makes different batches: {differing} of rank {rank} is not as of rank {world.rank}",
                    "make the same names, dtypes and numbers of dimensions of any rows",
                )


def _kinds(batch: dict[str, Any]) -> dict[str, str]:
    return {name: f"{value.dtype} of {value.dim()} dimensions" for name, value in batch.items() if torch.is_tensor(value) and name != COUNT}


UNTRAINED_ADVICE = "use them in every batch, take them out of the model, or set requires_grad of them to False"


def acted(module: ProgramModule, made: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """A batch of collate as the loss gets it: rolled out, where the program does so, with generators of `seed`. Without lasting effects.

    Raises BadInput if the roll-out changes the model, or returns no batch.
    """
    if not module.loaded.acts:
        return made
    was_training = module.training
    device = next(module.parameters()).device
    before = _state_of(module.model)
    module.eval()
    with kept_generators(), torch.no_grad():
        torch.manual_seed(seed)
        found = module({name: value.to(device) for name, value in made.items() if torch.is_tensor(value)}, "rollout")
    module.train(was_training)
    after = _state_of(module.model)
    what = f"rollout of {module.loaded.name}"
    if after != before:
        changed = [name for name, state in before.items() if after.get(name) != state]
        raise BadInput(f"{what} changes {_some(changed)} of the model", "let the optimizer change weights: return what loss learns from")
    return checked_batch(found, float(made[COUNT]), what)


def _state_of(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Place in memory and number of writes of each weight and buffer."""
    return {name: (value.data_ptr(), value._version) for name, value in model.state_dict(keep_vars=True).items()}


def refuse_untrainable(module: ProgramModule, made: dict[str, Any]) -> None:
    """Compute the loss of a batch and its gradients once, without lasting effects.

    Raises BadInput for parameters that the loss does not depend on (DDP would wait for their gradients), and for buffers that change during
    training (BatchNorm's running means): no checkpoint has them, and each rank would have its own.
    """
    name, model = module.loaded.name, module.model
    before = {key: value.detach().clone() for key, value in model.named_buffers()}
    trained = {key: value for key, value in model.named_parameters() if value.requires_grad}
    if not trained:
        raise BadInput(f"no parameter of the model of {name} is trained", "set requires_grad to True for the parameters to train")
    device = next(model.parameters()).device
    with kept_generators():
        module.train()
        loss = module({key: value.to(device) for key, value in made.items() if torch.is_tensor(value)})
        gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    changed = [key for key, value in model.named_buffers() if not _same(value, before.get(key))]
    with torch.no_grad():
        for key, value in model.named_buffers():
            if key in changed and key in before:
                value.copy_(before[key])
    if changed:
        raise BadInput(
            f"the model of {name} changes {_some(changed)} while it trains, and checkpoints hold parameters alone",
            "use GroupNorm or LayerNorm in place of BatchNorm (or track_running_stats=False), and make other state a parameter",
        )
    lost = [key for key, gradient in zip(trained, gradients, strict=True) if gradient is None]
    if lost:
        raise BadInput(f"the loss of {name} does not depend on {len(lost)} of the model's parameters: {_some(lost)}", UNTRAINED_ADVICE)


def refuse_changed_by_cut(module: ProgramModule, made: dict[str, Any], before: float) -> None:
    """Collective in the tensor group. Raises BadInput if the loss of the cut model differs from `before`, the loss of the whole model: a
    program may read weights itself, and each rank has only a part of them.
    """
    module.eval()
    after, _ = loss_of_batch(module, made)
    module.train()
    if not (abs(after - before) <= _NOISE * max(abs(before), 1e-6) or (math.isnan(after) and math.isnan(before))):
        raise BadInput(
            f"the loss of {module.loaded.name} changes with tensorParallel, from {before:.6g} to {after:.6g}: it reads weights itself",
            "set strategy.tensorParallel to 1; or use weights inside of a module's forward alone",
        )


def _same(now: torch.Tensor, before: torch.Tensor | None) -> bool:
    return before is not None and now.shape == before.shape and bool(torch.equal(now, before))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def mean_warning(module: ProgramModule, rows: Sequence[Row], collate: Callable[[Sequence[Row]], dict[str, Any]]) -> str | None:
    """A warning if the loss is not the mean over `count` things: the number of workers, or the size of micro-batches, would change
    training.

    The loss of some rows together is compared with the mean loss of their two halves, in evaluation mode and with equal generators. None if
    they agree, or if there are fewer than two rows.
    """
    if len(rows) < 2:
        return None
    half = len(rows) // 2
    was_training = module.training
    module.eval()

    def loss_of(part: Sequence[Row], seed: int = 0) -> tuple[float, float]:
        return loss_of_batch(module, acted(module, collate(part), seed), seed)

    try:
        together, again = (loss_of(rows, seed)[0] for seed in (0, 1))
        parts = [loss_of(part) for part in (rows[:half], rows[half:])]
    finally:
        module.train(was_training)
    total = sum(count for _, count in parts)
    mean = sum(loss * count for loss, count in parts) / total if total else together
    scale = max(abs(together), abs(mean), 1e-6)
    if abs(together - again) > _NOISE * scale:
        of = "rollout or loss" if module.loaded.acts else "loss"
        return (
            f"the {of} of {module.loaded.name} draws random numbers (one batch has {together:.4g} and {again:.4g}): they depend on the "
            "number of workers; drawn in collate, by row.generator(), they depend on the row alone"
        )
    if abs(together - mean) > _NOISE * scale:
        return (
            f"the loss of {module.loaded.name} is no mean over its rows: {len(rows)} rows have {together:.4g}, and their halves on average "
            f"{mean:.4g}; training depends on workers and batch.micro. If it is a mean over something else, have collate return count"
        )
    return None


def loss_of_batch(module: ProgramModule, made: dict[str, Any], seed: int = 0) -> tuple[float, float]:
    """Loss and count of a batch, in the module's current mode, without lasting effects."""
    device = next(module.parameters()).device
    batch = {name: value.to(device) for name, value in made.items() if torch.is_tensor(value)}
    with kept_generators(), torch.enable_grad():
        torch.manual_seed(seed)
        return float(module(batch).detach()), float(made[COUNT])
