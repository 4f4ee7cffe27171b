"""ZeRO-3 inside a host, replicas across hosts: `strategy.shardWithin: host` (hybrid sharding: DHEN, and MiCS; both Zhang et al. 2022).

DeepSpeed 0.19 has a partition group for every parameter (`ds_process_group`), over which ZeRO-3 gathers, scatters and takes norms. Here it
is the ranks of a host instead of all ranks. Two things are added: hosts start from one set of weights, and gradients are averaged across
hosts (`gradients`). Ranks are numbered host by host, equally many on each, as torchrun and Ray Train number them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from tuneyard.api import BadInput
from tuneyard.planning import Plan
from tuneyard.training.distributed import HostGroups, World, gather_objects


@contextmanager
def sharded_within_hosts(plan: Plan, world: World) -> Iterator[World]:
    """The world with its host groups, where the plan shards inside hosts; meanwhile DeepSpeed partitions over the ranks of a host.

    Collective. Raises BadInput where hosts do not have equally many ranks, or there is nothing to shard or to replicate.
    """
    if plan.shard_within == "none":
        yield world
        return
    _check_hosts(world)
    groups = host_groups(world)
    from deepspeed.runtime.zero.partition_parameters import Init

    original = Init.__init__

    def inside_host(init: Any, module: Any = None, data_parallel_group: Any = None, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
        # transformers and the engine name all ranks here, and have no setting for another group
        original(init, module, groups.inside, *args, **kwargs)

    Init.__init__ = inside_host
    try:
        yield replace(world, host_groups=groups)
    finally:
        Init.__init__ = original


def spread_weights(model: Any, world: World) -> None:
    """Give every host the shards of the first: transformers reads files into rank 0 alone. Collective; nothing without host groups."""
    if world.host_groups is None:
        return
    for parameter in model.parameters():
        if hasattr(parameter, "ds_tensor") and parameter.ds_tensor.numel():
            _broadcast(parameter.ds_tensor, world.host_groups)


def spread_masters(engine: Any, groups: HostGroups) -> None:
    """The same for what the engine has made of them, the fp32 copies of trained weights. Collective. `pieces.after_load` has to follow."""
    for flat in engine.optimizer.fp32_partitioned_groups_flat:
        if flat.numel():
            _broadcast(flat, groups)


def whole_hosts(world: World) -> bool:
    """Whether hosts have equally many ranks, numbered host by host. Collective."""
    local = world.local_size
    places = gather_objects(world, (world.local_rank, local))
    return not world.size % local and all(place == (rank % local, local) for rank, place in enumerate(places))


def _check_hosts(world: World) -> None:
    local = world.local_size
    if not whole_hosts(world):
        raise BadInput(
            f"shardWithin: host needs equally many ranks on each host, numbered host by host; one here has {local} of {world.size}",
            "choose resources.workers so that each host gets equally many, or set strategy.shardWithin to none",
        )
    if local == world.size:
        raise BadInput(
            f"shardWithin: host replicates across hosts, and all {world.size} ranks are on one",
            "set strategy.shardWithin to none: ZeRO-3 over one host is the same",
        )
    if local == 1:
        raise BadInput(
            f"shardWithin: host shards over the ranks of a host, and each of the {world.size} hosts has one",
            "set strategy.shardWithin to none, and strategy.zero to 0 for replicas, or to 3 to shard over all",
        )


def host_groups(world: World) -> HostGroups:
    """Groups over hosts that are whole. Every rank makes every group, in one order, as torch asks."""
    local, hosts = world.local_size, world.size // world.local_size
    inside = [dist.new_group(list(range(host * local, (host + 1) * local))) for host in range(hosts)]
    across = [dist.new_group(list(range(place, world.size, local))) for place in range(local)]
    host, place = divmod(world.rank, local)
    return HostGroups(inside[host], across[place], hosts, host)


def _broadcast(tensor: torch.Tensor, groups: HostGroups) -> None:
    dist.broadcast(tensor.detach(), src=dist.get_global_rank(groups.across, 0), group=groups.across)
