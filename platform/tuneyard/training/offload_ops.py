"""DeepSpeed's own C++ for offloading, compiled once on the machine that trains, before the model takes the memory.

CPU Adam is compiled by ninja and a C++ compiler into the user's cache (~/.cache/torch_extensions, or $TORCH_EXTENSIONS_DIR);
NVMe offload needs libaio as well. What is missing is said here, not from the middle of an engine's constructor.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tuneyard.api import BadInput, JobFailed
from tuneyard.planning import Plan
from tuneyard.tracking.events import Emit, Stage
from tuneyard.training.abandoned_locks import remove_abandoned_locks
from tuneyard.training.distributed import World, barrier
from tuneyard.training.offload_disk import uses_disk

COMPILER_ERRORS = (RuntimeError, OSError, AssertionError, subprocess.CalledProcessError)


def prepare_offload(plan: Plan, world: World, *, optimizer: str, task: str, emit: Emit) -> None:
    """Compile what the plan's offloading needs; one rank of each machine does, the others wait.

    Raises BadInput where NVMe offload cannot work here, JobFailed where the compiler is missing or fails.
    """
    needs_nvme = uses_disk(plan)
    needs_adam = plan.offload_optimizer != "none" and optimizer == "adamw"
    if world.is_first_here and (needs_nvme or needs_adam):
        emit(Stage(task=task, name="compiling DeepSpeed's offload code (once per machine)"))
        remove_abandoned_locks(_extensions())
        if needs_nvme:
            _compile_async_io()
        if needs_adam:
            _compile_cpu_adam()
    barrier(world)


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
