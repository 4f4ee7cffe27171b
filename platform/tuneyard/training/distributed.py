"""The process group of training: this rank's place, how it joins, and the few collectives that are not DeepSpeed's or DDP's.

The environment is torchrun's (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT). Without it there is one process. A
group that a launcher has already initialised (Ray's TorchTrainer) is kept.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tuneyard.api import BadInput
from tuneyard.parallel import Mesh

_ACCELERATOR = "DS_ACCELERATOR"
COLLECTIVE_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True)
class HostGroups:
    """Process groups of this rank if hosts are replicas. `inside`: its host; `across`: the ranks with the same index in each host."""

    inside: Any
    across: Any
    hosts: int
    host: int


@dataclass(frozen=True)
class World:
    """This rank's place. `local_*` count only the ranks of this machine. `host_groups`: with `shardWithin: host`."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    device: torch.device
    mesh: Mesh
    tensor_group: Any = None
    """Process group of the ranks that together hold one copy of the weights; None if each rank has all weights."""
    gradient_group: Any = None
    """Process group of the ranks that hold the same weights; None if these are all ranks."""
    context_group: Any = None
    """Process group of the ranks that share rows; None if each rank has whole rows."""
    host_groups: HostGroups | None = None

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def is_first_here(self) -> bool:
        """True for one rank of each machine: the one that writes to the machine's disk."""
        return self.local_rank == 0

    @property
    def machine(self) -> int:
        """Number of this rank's machine, from 0, where all machines have equally many ranks."""
        return self.rank // self.local_size

    @property
    def data_rank(self) -> int:
        """Index of this rank's share of the rows: the same on all ranks of a tensor group."""
        return self.mesh.place(self.rank).data

    @property
    def tensor_index(self) -> int:
        """Index of this rank's share of the weights."""
        return self.mesh.place(self.rank).tensor

    @property
    def gradient_rank(self) -> int:
        """Index of this rank among those that hold the same weights."""
        return self.rank // self.mesh.tensor

    @property
    def gradient_size(self) -> int:
        """Number of ranks that hold the same weights."""
        return self.size // self.mesh.tensor

    @property
    def holders(self) -> list[int]:
        """Ranks that save parts of this rank's sharded training state: those with its index in each host, and the first of each tensor
        group, which saves what the whole group holds.
        """
        if self.host_groups is not None:
            return list(range(self.local_rank, self.size, self.local_size))
        return sorted({self.rank, *(range(0, self.size, self.mesh.tensor) if self.mesh.tensor > 1 else ())})


def use_growing_segments() -> None:
    """Have torch's allocator for GPUs grow its segments, before this process first uses a GPU. Rows of many lengths would otherwise leave
    gaps that nothing fits into. A setting of the user's stays.
    """
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")


@contextmanager
def joined_world(*, on_gpu: bool, with_deepspeed: bool, mesh: Mesh) -> Iterator[World]:
    """The world, with a process group if there is more than one rank, or if DeepSpeed needs one.

    A group made here is destroyed at the end. DeepSpeed's group lives as long as the process, because DeepSpeed never releases it. Raises
    BadInput if the number of ranks differs from `mesh`, if a tensor group spans machines, or if DeepSpeed has settled on the other kind of
    device in this process.
    """
    if on_gpu:
        use_growing_segments()
    world = _world_of_environment(on_gpu, mesh)
    backend = "nccl" if on_gpu else "gloo"
    makes_group = not dist.is_initialized() and (world.size > 1 or with_deepspeed)
    with _accelerator_of_deepspeed(on_gpu, with_deepspeed), _environment_of_one() if world.size == 1 and with_deepspeed else nullcontext():
        if makes_group:
            dist.init_process_group(backend=backend, rank=world.rank, world_size=world.size, timeout=COLLECTIVE_TIMEOUT)
        if with_deepspeed:
            _let_deepspeed_find_ninja()
            from tuneyard.training.zero_stack import deepspeed

            # A shared-memory all-reduce for inference on cpu, which DeepSpeed would compile (for a minute) at every first start.
            deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
            # Before any model exists: ZeRO-3 partitions weights during their creation, and needs the world by then.
            deepspeed.init_distributed(dist_backend=backend, auto_mpi_discovery=False, verbose=False)
        elif find_spec("deepspeed") is not None:
            import tuneyard.training.zero_stack  # noqa: F401  accelerate would import DeepSpeed as it unwraps the model, in twice the time
        try:
            with _joined_groups(world, with_deepspeed) as meshed:
                yield meshed
        finally:
            if makes_group and not with_deepspeed:
                dist.destroy_process_group()


@contextmanager
def _accelerator_of_deepspeed(on_gpu: bool, with_deepspeed: bool) -> Iterator[None]:
    """Have DeepSpeed find the device of this run. It looks once in a process, at its import, which any run may cause; a run on cpu without
    DeepSpeed therefore leaves a GPU for it to find. Raises BadInput if it has found the other kind before.
    """
    kept = os.environ.get(_ACCELERATOR)
    if not on_gpu and (with_deepspeed or not torch.cuda.is_available()):
        os.environ[_ACCELERATOR] = "cpu"
    try:
        if with_deepspeed:
            from tuneyard.training.zero_stack import deepspeed

            found = deepspeed.accelerator.get_accelerator().device_name()
            if (found == "cpu") == on_gpu:
                raise BadInput(
                    f"DeepSpeed works on {found} in this process since an earlier run, and cannot change to {'GPUs' if on_gpu else 'cpu'}",
                    "start this run in a process of its own (`tuneyard run` does), or set strategy.zero to 0",
                )
        yield
    finally:
        os.environ.pop(_ACCELERATOR, None)
        if kept is not None:
            os.environ[_ACCELERATOR] = kept


@contextmanager
def _joined_groups(world: World, with_deepspeed: bool) -> Iterator[World]:
    """The world with the groups of its mesh, which are destroyed at the end."""
    if world.mesh.context > 1:
        contexts = [dist.new_group(ranks, timeout=COLLECTIVE_TIMEOUT) for ranks in world.mesh.context_groups()]
        world = replace(world, context_group=contexts[world.data_rank * world.mesh.tensor + world.tensor_index])
    try:
        with _joined_tensor_groups(world, with_deepspeed) as meshed:
            yield meshed
    finally:
        if world.context_group is not None:
            dist.destroy_process_group(world.context_group)


@contextmanager
def _joined_tensor_groups(world: World, with_deepspeed: bool) -> Iterator[World]:
    if world.mesh.tensor == 1:
        yield world
        return
    _refuse_spread(world)
    # Every rank takes part in making every group, in the same order.
    tensor, gradient = (
        [dist.new_group(ranks, timeout=COLLECTIVE_TIMEOUT) for ranks in groups]
        for groups in (world.mesh.tensor_groups(), world.mesh.gradient_groups())
    )
    try:
        yield replace(world, tensor_group=tensor[world.gradient_rank], gradient_group=gradient[world.tensor_index])
    finally:
        if with_deepspeed:
            from tuneyard.training.zero_stack import deepspeed

            deepspeed.utils.groups.mpu = None  # otherwise DeepSpeed would use these groups in the next run of this process
        for group in (tensor[world.gradient_rank], gradient[world.tensor_index]):
            dist.destroy_process_group(group)


def _refuse_spread(world: World) -> None:
    """Raises BadInput, on every rank, if the ranks of a tensor group are not neighbours on one machine."""
    machines = gather_objects(world, world.rank - world.local_rank)
    for ranks in world.mesh.tensor_groups():
        if len({machines[rank] for rank in ranks}) > 1:
            raise BadInput(
                f"ranks {ranks[0]} to {ranks[-1]} share each weight (tensorParallel {world.mesh.tensor}), and are on several machines",
                "start as many ranks on each machine as tensorParallel divides, or lower strategy.tensorParallel",
            )


def barrier(world: World) -> None:
    if world.size > 1:
        dist.barrier(**({"device_ids": [world.device.index]} if world.device.type == "cuda" else {}))


def gather_objects(world: World, value: Any) -> list[Any]:
    """`value` of every rank, in rank order, on every rank. It moves pickles: only for small records."""
    if world.size == 1:
        return [value]
    gathered: list[Any] = [None] * world.size
    dist.all_gather_object(gathered, value)
    return gathered


def broadcast_object(world: World, value: Any) -> Any:
    """Rank 0's `value`, on every rank."""
    if world.size == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def _world_of_environment(on_gpu: bool, mesh: Mesh) -> World:
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size != mesh.size:
        raise BadInput(f"the plan is for {mesh.size} workers, and {size} were started", "start as many ranks as the plan has workers")
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local_rank % max(1, torch.cuda.device_count())) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", str(size)))
    return World(int(os.environ.get("RANK", "0")), size, local_rank, local_size, device, mesh)


def _let_deepspeed_find_ninja() -> None:
    """Put the folder of this Python on PATH. DeepSpeed's ninja is installed there, and `.venv/bin/tuneyard` also runs without an activated
    environment.
    """
    own = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if own not in path:
        os.environ["PATH"] = os.pathsep.join([own, *path])


@contextmanager
def _environment_of_one() -> Iterator[None]:
    """torchrun's environment of a single rank, for libraries that read it."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    missing = {name: value for name, value in {**alone, "MASTER_PORT": str(_free_port())}.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
