"""DeepSpeed's own C++ for offloading, compiled once on the machine that trains, before the model takes the memory.

CPU Adam is compiled by ninja and a C++ compiler into the user's cache (~/.cache/torch_extensions, or $TORCH_EXTENSIONS_DIR);
NVMe offload needs libaio as well. What is missing is said here, not from the middle of an engine's constructor.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tuneyard.api import BadInput, JobFailed
from tuneyard.planning import Plan
from tuneyard.planning.setup import BYTES
from tuneyard.tracking.events import Emit, Stage
from tuneyard.training.abandoned_locks import remove_abandoned_locks
from tuneyard.training.distributed import World, barrier
from tuneyard.warm import temporary_folder

COMPILER_ERRORS = (RuntimeError, OSError, AssertionError, subprocess.CalledProcessError)


def prepare_offload(plan: Plan, world: World, *, optimizer: str, task: str, emit: Emit) -> None:
    """Compile what the plan's offloading needs; one rank of each machine does, the others wait.

    Raises BadInput where NVMe offload cannot work here, JobFailed where the compiler is missing or fails.
    """
    needs_nvme = _needs_nvme(plan)
    needs_adam = plan.offload_optimizer != "none" and optimizer == "adamw"
    if world.is_first_here and (needs_nvme or needs_adam):
        emit(Stage(task=task, name="compiling DeepSpeed's offload code (once per machine)"))
        remove_abandoned_locks(_extensions())
        if needs_nvme:
            _compile_async_io()
        if needs_adam:
            _compile_cpu_adam()
    barrier(world)


@contextmanager
def on_disk(plan: Plan) -> Iterator[Plan]:
    """The plan with a folder for this rank alone below its NVMe path, which is removed at the end; unchanged where nothing goes there.
    DeepSpeed names its files by rank: two jobs in one folder would read each other's states, and it leaves them behind.

    Raises BadInput for a path that cannot be written to, or without direct I/O.
    """
    if not _needs_nvme(plan):
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


def check_space(plan: Plan, world: World, *, parameters: int, trained: int) -> None:
    """Raises BadInput where the disk has less room than the ranks of this machine will offload to it, in total.

    `parameters` and `trained`: elements of the whole model. Per trained one DeepSpeed keeps a master, two moments and a gradient in fp32.
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


def _needs_nvme(plan: Plan) -> bool:
    return "nvme" in (plan.offload_optimizer, plan.offload_parameters)


def _compile_async_io() -> None:
    from deepspeed.ops.op_builder import AsyncIOBuilder

    builder = AsyncIOBuilder()
    try:
        if not builder.is_compatible(verbose=False):
            raise RuntimeError("libaio was not found")
        builder.load(verbose=False)
    except COMPILER_ERRORS as error:
        raise BadInput(
            f"offload to nvme needs DeepSpeed's async_io, which cannot be built here: {_first_line(error)}",
            "install libaio with its headers (Debian: apt-get install libaio-dev), g++ and ninja in the image, or offload to cpu",
        ) from error


def _extensions() -> Path:
    """Where torch keeps what it compiles for this Python and CUDA."""
    from torch.utils.cpp_extension import _get_build_directory

    return Path(_get_build_directory("cpu_adam", verbose=False)).parent


def _compile_cpu_adam() -> None:
    from deepspeed.ops.op_builder import CPUAdamBuilder

    try:
        CPUAdamBuilder().load(verbose=False)
    except COMPILER_ERRORS as error:
        raise JobFailed(
            f"DeepSpeed's CPU Adam could not be compiled: {_first_line(error)}",
            "install g++ and ninja (Debian: apt-get install g++ ninja-build) in the image, or set strategy.offload.optimizer: none",
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
