"""ZeRO-3 inside a host, replicas across hosts: `strategy.shardWithin: host` (hybrid sharding: DHEN, and MiCS; both Zhang et al. 2022).

In DeepSpeed 0.19, every parameter has a partition group (`ds_process_group`), over which ZeRO-3 gathers, scatters and takes norms. Here
that group is the ranks of a host instead of all ranks. This module adds two things: hosts start from one set of weights, and gradients are
averaged across hosts (`gradients`). Ranks are numbered host by host, equally many on each, as by torchrun and Ray Train.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from tuneyard.planning import Plan
from tuneyard.training.distributed import HostGroups, World, gather_objects

_INSTEAD = "; ZeRO-3 shards over all ranks instead, which takes less memory and trains the same"
ONE_HOST = f"shardWithin: host has no effect: there are not several machines with equally many ranks, two at least{_INSTEAD}"
"""The warning if the planner has already found this."""


def on_hosts(plan: Plan, world: World) -> tuple[Plan, str]:
    """The plan for the hosts of a gang, and a warning if these cannot be replicas: the plan then shards over all ranks. A scheduler does
    not promise whole hosts. Collective.
    """
    why = _why_not(world) if plan.shard_within == "host" else ""
    if not why:
        return plan, ""
    return replace(plan, shard_within="none", quantised_all_reduce="none"), f"shardWithin: host has no effect: {why}{_INSTEAD}"


@contextmanager
def sharded_within_hosts(plan: Plan, world: World) -> Iterator[World]:
    """The world with its host groups, if the plan shards inside hosts. Inside the context, DeepSpeed partitions over the ranks of a host.

    Collective. The plan must come from `on_hosts`.
    """
    if plan.shard_within == "none":
        yield world
        return
    groups = host_groups(world)
    from deepspeed.runtime.zero.partition_parameters import Init

    original = Init.__init__

    def inside_host(init: Any, module: Any = None, data_parallel_group: Any = None, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
        # transformers and the engine pass all ranks here, and have no setting for another group
        original(init, module, groups.inside, *args, **kwargs)

    Init.__init__ = inside_host
    try:
        yield replace(world, host_groups=groups)
    finally:
        Init.__init__ = original


def spread_weights(model: Any, world: World) -> None:
    """Copy the shards of the first host to every host: transformers reads files only into rank 0. Collective; no effect without host
    groups.
    """
    if world.host_groups is None:
        return
    for parameter in model.parameters():
        if hasattr(parameter, "ds_tensor") and parameter.ds_tensor.numel():
            _broadcast(parameter.ds_tensor, world.host_groups)


def spread_masters(engine: Any, groups: HostGroups) -> None:
    """The same for the engine's fp32 copies of trained weights. Collective. `pieces.after_load` has to follow."""
    for flat in engine.optimizer.fp32_partitioned_groups_flat:
        if flat.numel():
            _broadcast(flat, groups)


def whole_hosts(world: World) -> bool:
    """Whether hosts have equally many ranks, numbered host by host. Collective."""
    local = world.local_size
    places = gather_objects(world, (world.local_rank, local))
    return not world.size % local and all(place == (rank % local, local) for rank, place in enumerate(places))


def _why_not(world: World) -> str:
    """Why the hosts of a world cannot be replicas of each other; empty if they can. Collective."""
    local = world.local_size
    if not whole_hosts(world):
        return f"hosts do not have equally many ranks, numbered host by host: one has {local} of {world.size}"
    if local == world.size:
        return f"all {world.size} ranks are on one host"
    return f"each of the {world.size} hosts has one rank" if local == 1 else ""


def host_groups(world: World) -> HostGroups:
    """Groups over whole hosts. Every rank makes every group, in the same order, as torch requires."""
    local, hosts = world.local_size, world.size // world.local_size
    inside = [dist.new_group(list(range(host * local, (host + 1) * local))) for host in range(hosts)]
    across = [dist.new_group(list(range(place, world.size, local))) for place in range(local)]
    host, place = divmod(world.rank, local)
    return HostGroups(inside[host], across[place], hosts, host)


def _broadcast(tensor: torch.Tensor, groups: HostGroups) -> None:
    dist.broadcast(tensor.detach(), src=dist.get_global_rank(groups.across, 0), group=groups.across)
