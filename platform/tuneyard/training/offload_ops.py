"""DeepSpeed's C++ libraries for offloading, loaded before the model takes the memory.

CPU Adam is compiled by ninja and a C++ compiler; NVMe offload also needs libaio. A missing dependency is reported here, not from within an
engine's constructor.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from tuneyard.api import BadInput, JobFailed
from tuneyard.api.errors import said_by
from tuneyard.planning import Plan
from tuneyard.tracking.events import Emit, Stage
from tuneyard.training.compiled_ops import load_op
from tuneyard.training.distributed import World, barrier
from tuneyard.training.offload_disk import uses_disk

COMPILER_ERRORS = (RuntimeError, OSError, ImportError, AssertionError, subprocess.CalledProcessError, AttributeError, TypeError)
"""The last two come from DeepSpeed's builders where a CUDA toolkit is missing."""


def prepare_offload(plan: Plan, world: World, *, optimizer: str, task: str, emit: Emit) -> None:
    """Load the libraries for the plan's offloading. If they are not compiled yet, one rank of each machine compiles, and the others wait.

    Raises BadInput if NVMe offload cannot work here, JobFailed if the compiler is missing or fails.
    """
    needs_nvme = uses_disk(plan)
    needs_adam = plan.offload_optimizer != "none" and optimizer == "adamw"
    if not needs_nvme and not needs_adam:
        return

    def load() -> None:
        if needs_nvme:
            _load_async_io(tell)
        if needs_adam:
            _load_cpu_adam(tell)

    def tell() -> None:
        emit(Stage(task=task, name="compiling DeepSpeed's offload code (once per machine)"))

    if world.is_first_here:
        load()
    barrier(world)
    load()  # here, on the other ranks


def _load_async_io(tell: Callable[[], None]) -> None:
    """By the builders for cpu, also on GPUs: the same sources, which hold no CUDA. Those for GPUs need a toolkit, which no image has.
    DeepSpeed finds the libraries by their names.
    """
    from deepspeed.ops.op_builder.cpu import AsyncIOBuilder, PinMemoryBuilder

    try:
        load_op(PinMemoryBuilder(), tell)
        load_op(AsyncIOBuilder(), tell)
    except COMPILER_ERRORS as error:
        raise BadInput(
            f"offload to nvme needs DeepSpeed's async_io, which cannot be built here: {said_by(error)}",
            "install libaio with its headers (Debian: apt-get install libaio-dev), g++ and ninja in the image, or offload to cpu",
        ) from error


def _load_cpu_adam(tell: Callable[[], None]) -> None:
    from deepspeed.ops.op_builder import CPUAdamBuilder

    try:
        load_op(CPUAdamBuilder(), tell)
    except COMPILER_ERRORS as error:
        raise JobFailed(
            f"DeepSpeed's CPU Adam could not be compiled: {said_by(error)}",
            "install g++ and ninja (Debian: apt-get install g++ ninja-build) in the image, or set strategy.offload.optimizer: none",
        ) from error
