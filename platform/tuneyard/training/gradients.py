"""Averaging of gradients that neither DDP nor DeepSpeed does alone: across hosts under `shardWithin: host`, and in 8 bits."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tuneyard.parallel.exchange import GradientExchange
from tuneyard.planning import Plan
from tuneyard.training.checkpoint.pieces import after_load
from tuneyard.training.distributed import World
from tuneyard.training.host_sharding import host_groups, spread_masters, spread_weights, whole_hosts


def exchange_gradients(trainer: Any, world: World, plan: Plan) -> GradientExchange | None:
    """Take over the averaging of a trainer whose model is wrapped; None if the engine averages alone. Collective."""
    if world.host_groups is not None:
        spread_weights(trainer.model, world)
        spread_masters(trainer.deepspeed, world.host_groups)
        after_load(trainer)
        return _across_hosts(trainer.deepspeed, world.host_groups.across, plan)
    if plan.quantised_all_reduce != "none" and isinstance(trainer.model_wrapped, DistributedDataParallel):
        return _in_buckets_of_ddp(trainer, world, plan)
    return None


def _across_hosts(engine: Any, across: Any, plan: Plan) -> GradientExchange:
    """Exchange each bucket as soon as it is reduced inside the host, in the last micro-batch. All have arrived before the engine steps."""
    zero = engine.optimizer
    exchange = GradientExchange(across, plan.quantised_all_reduce, unit=lambda: float(zero.loss_scale))
    partition, step = zero.partition_grads, engine.step

    def partition_and_start(parameters: list[Any], partitions: list[torch.Tensor]) -> Any:
        names = tuple(parameter.ds_id for parameter in parameters)
        buffers = partition(parameters, partitions)
        if zero.is_gradient_accumulation_boundary():
            exchange.start(names, buffers)
        return buffers

    def finish_and_step(*args: Any, **kwargs: Any) -> Any:
        exchange.finish()
        return step(*args, **kwargs)

    zero.partition_grads, engine.step = partition_and_start, finish_and_step
    return exchange


def _in_buckets_of_ddp(trainer: Any, world: World, plan: Plan) -> GradientExchange:
    scaler = trainer.accelerator.scaler
    groups = host_groups(world) if whole_hosts(world) and 1 < world.local_size < world.size else None
    exchange = GradientExchange(
        groups.across if groups else dist.new_group(),
        plan.quantised_all_reduce,
        groups.inside if groups else None,
        unit=lambda: float(scaler.get_scale()) if scaler is not None else 1.0,
    )
    # DDP compares annotations with its classes; those of a method are strings here
    trainer.model_wrapped.register_comm_hook(exchange, lambda exchange, bucket: exchange.average_bucket(bucket))
    return exchange
