"""The disk for offloaded weights and optimizer states: a folder per rank, and a check of its free space."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tuneyard.api import BadInput
from tuneyard.planning import Plan
from tuneyard.planning.setup import BYTES
from tuneyard.training.distributed import World
from tuneyard.training.models import sizes_of_weights
from tuneyard.training.request import TrainRequest
from tuneyard.warm import temporary_folder


def uses_disk(plan: Plan) -> bool:
    """Whether anything is offloaded to a disk."""
    return "nvme" in (plan.offload_optimizer, plan.offload_parameters)


@contextmanager
def on_disk(plan: Plan) -> Iterator[Plan]:
    """The plan with a folder of this rank's own below its NVMe path, which is removed at the end; unchanged without offload to disk.

    DeepSpeed names its files by rank: two jobs in one folder would read each other's states. It also leaves its files behind. Raises
    BadInput for a path that cannot be written to, or without direct I/O.
    """
    if not uses_disk(plan):
        yield plan
        return
    advice = "set strategy.offload.nvmePath to a folder on a local disk"
    with ExitStack() as stack:
        try:
            Path(plan.nvme_path).mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(temporary_folder("tuneyard-offload-", Path(plan.nvme_path)))
        except OSError as error:
            raise BadInput(f"nothing can be offloaded to {plan.nvme_path}: {error.strerror or error}", advice) from error
        try:
            os.close(os.open(folder / "probe", os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
        except OSError as error:
            raise BadInput(f"{plan.nvme_path} has no direct I/O, which offloading to nvme needs: {error.strerror}", advice) from error
        yield replace(plan, nvme_path=str(folder))


def largest_on_disk(request: TrainRequest, start: str, world: World) -> int:
    """Elements of the largest weight, for DeepSpeed's buffers; 0 without offload to disk. Raises BadInput if the disk is too small."""
    plan, task = request.plan, request.task
    if not uses_disk(plan):
        return 0
    sizes = sizes_of_weights(request, start)
    total = sum(sizes)
    _check_space(plan, world, parameters=total, trained=total if task.method.name == "full" else 0)
    return max(sizes)


def _check_space(plan: Plan, world: World, *, parameters: int, trained: int) -> None:
    """Raises BadInput if the disk has less free space than the ranks of this machine offload to it, in total.

    `parameters` and `trained`: elements of the whole model. Per trained element, DeepSpeed keeps a master, two moments and a gradient in
    fp32.
    """
    needed = 0.0
    if plan.offload_optimizer == "nvme":
        needed += 16.0 * trained
    if plan.offload_parameters == "nvme":
        needed += BYTES[plan.precision] * parameters
    if not needed or not world.is_first_here:
        return
    here = needed * world.local_size / world.size
    free = shutil.disk_usage(plan.nvme_path).free
    if here > free:
        raise BadInput(
            f"offloading to {Path(plan.nvme_path).parent} takes {here / 1e9:.1f} GB on this machine, and {free / 1e9:.1f} GB are free",
            "free some, set strategy.offload.nvmePath to a folder on another disk, or use more machines",
        )
