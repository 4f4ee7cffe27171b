"""Tensor parallelism in training: a model cut over a tensor group, and the settings of transformers, accelerate and DeepSpeed for it.

Ranks of a tensor group read the same rows, and hold different parts of the weights. Gradients are averaged over the ranks that hold the
same weights (the gradient group). The clipping norm is that of the whole model: parts are summed over the tensor group, and whole
parameters count once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from tuneyard.api import BadInput
from tuneyard.parallel import Shards, TensorParallelPlan, keep_logits_sharded, shard_model
from tuneyard.planning import Plan
from tuneyard.training.distributed import World

_IS_SHARD = "tensor_model_parallel"
"""Attribute by which Megatron-LM and DeepSpeed recognise a parameter that is cut."""


def check_supported(plan: Plan) -> None:
    """Raises BadInput for a plan that the rules of a JobSpec refuse: a plan may be made without these rules."""
    if plan.tensor_parallel == 1:
        return
    refused = {
        "ZeRO 3 with tensorParallel": (plan.zero == 3, "set strategy.zero to 2"),
        "offloading with tensorParallel": (plan.offload_optimizer != "none", "set strategy.offload.optimizer to none"),
        "Liger kernels with tensorParallel": (plan.liger, "set strategy.liger to false"),
        "contextParallel with tensorParallel": (plan.context_parallel > 1, "set one of them to 1"),
        "quantisedAllReduce with tensorParallel": (plan.quantised_all_reduce != "none", "set strategy.quantisedAllReduce to none"),
        "fp16 with tensorParallel and ZeRO 0": (plan.precision == "fp16" and plan.zero == 0, "set strategy.zero to 1 or 2"),
    }
    for combination, (is_asked, remedy) in refused.items():
        if is_asked:
            raise BadInput(f"{combination} is not there yet", remedy)


def shard(model: Any, plan: TensorParallelPlan | None, world: World) -> Shards | None:
    """Reduce the model to this rank's part. Collective within the tensor group. Raises BadInput for adapters that cannot be cut."""
    if plan is None:
        return None
    shards = shard_model(model, plan, world.tensor_group)
    mark(model, shards)
    return shards


def keep_logits(model: Any, plan: TensorParallelPlan, shards: Shards) -> bool:
    """Keep logits in shards, if head and loss of the model allow it. Returns whether they do. The model may have adapters."""
    try:
        keep_logits_sharded(model.get_base_model() if hasattr(model, "get_base_model") else model, plan, shards)
    except BadInput:
        return False
    return True


def mark(model: Any, shards: Shards) -> None:
    """Mark each parameter as whole or as a part, for DeepSpeed and `clip`."""
    for name, parameter in model.named_parameters():
        setattr(parameter, _IS_SHARD, not shards.replicated(name))


@dataclass
class GradientGroupKwargs(DistributedDataParallelKwargs):
    """Settings of DDP, with the ranks over which it averages."""

    process_group: Any = None

    def to_kwargs(self) -> dict[str, Any]:
        plain = DistributedDataParallelKwargs(**{name: value for name, value in vars(self).items() if name != "process_group"})
        return {**plain.to_kwargs(), "process_group": self.process_group}


class Mpu:
    """The model parallel unit for DeepSpeed, with the interface of Megatron-LM's mpu."""

    def __init__(self, world: World) -> None:
        self._world = world

    def get_model_parallel_rank(self) -> int:
        return self._world.tensor_index

    def get_model_parallel_world_size(self) -> int:
        return self._world.mesh.tensor

    def get_model_parallel_group(self) -> Any:
        return self._world.tensor_group

    def get_data_parallel_rank(self) -> int:
        return self._world.gradient_rank

    def get_data_parallel_world_size(self) -> int:
        return self._world.gradient_size

    def get_data_parallel_group(self) -> Any:
        return self._world.gradient_group

    def get_data_parallel_group_ranks(self) -> list[int]:
        return self._world.mesh.gradient_groups()[self._world.tensor_index]


@contextmanager
def engines_told(accelerator: Accelerator, world: World) -> Iterator[None]:
    """Make DDP and DeepSpeed average over the gradient group, while accelerate prepares a model. No effect if each rank has all weights."""
    if world.tensor_group is None:
        yield
        return
    ddp = accelerator.ddp_handler or DistributedDataParallelKwargs()
    accelerator.ddp_handler = GradientGroupKwargs(**vars(ddp), process_group=world.gradient_group)
    if accelerator.state.deepspeed_plugin is None:
        yield
        return
    from tuneyard.training.zero_stack import deepspeed

    initialize = deepspeed.initialize
    deepspeed.initialize = functools.partial(_initialize, initialize, world)
    try:
        yield
    finally:
        deepspeed.initialize = initialize


def _initialize(initialize: Any, world: World, *, config_params: dict[str, Any], **options: Any) -> Any:
    """deepspeed.initialize with the mesh. accelerate counts rows by all ranks, DeepSpeed by the ranks of a gradient group."""
    rows = config_params["train_batch_size"] // world.mesh.tensor
    return initialize(config_params={**config_params, "train_batch_size": rows}, mpu=Mpu(world), **options)


def clip(parameters: Iterator[torch.nn.Parameter], max_norm: float, world: World) -> torch.Tensor:
    """Scale gradients so that the norm over the whole model is at most `max_norm`. Returns the norm before. Collective in the tensor
    group.
    """
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    squares = {
        is_shard: _norm([each.grad for each in trained if getattr(each, _IS_SHARD, False) is is_shard]).to(world.device).double() ** 2
        for is_shard in (False, True)
    }
    dist.all_reduce(squares[True], group=world.tensor_group)
    norm = (squares[False] + squares[True]).sqrt().float()
    if max_norm != float("inf"):
        clip_grads_with_norm_(trained, max_norm, norm)
    return norm


def _norm(gradients: list[Any]) -> torch.Tensor:
    return get_total_norm(gradients) if gradients else torch.zeros(())
