"""Facts about the place where a task will run, and the search for plans there, with the settings that the place and the model decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import Gpu, ModelShape
from tuneyard.planning.calibration import DEFAULT, Calibration
from tuneyard.planning.context import refuse_degree
from tuneyard.planning.kernels import kernels_of
from tuneyard.planning.memory import LIBRARIES_GB
from tuneyard.planning.search import Search
from tuneyard.planning.setup import Precision
from tuneyard.planning.tensor import choices
from tuneyard.planning.tensor import refuse_degree as refuse_tensor_degree


class Site(TypedDict, total=False):
    """Optional facts about the place where a task will run."""

    host_memory_gb: float | None
    """Host memory per rank for offloading; None: not limited."""
    max_seq: int | None
    """The longest row of the data, if known."""
    flash_available: bool
    """Whether the package flash-attn is installed there. NVIDIA GPUs without it take the kernel inside torch."""
    liger_available: bool
    tensor_parallel: Sequence[int]
    """Degrees that the search may choose, by default `tensor.choices`. A degree in the task's strategy takes precedence."""
    pipeline_parallel: Sequence[int]
    gpus_per_node: int
    network_gb_s: float | None
    """Network of a machine; None: usual for the SKU."""
    host_bandwidth_gb_s: float | None
    """Measured memory bandwidth of a machine's host; None: assumed."""
    calibration: Calibration
    libraries_gb: float
    """Memory of a rank on `cpu` before it loads the model, as measured there; by default `memory.LIBRARIES_GB`."""


def search_of(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> Search:
    """The search of `resolve` and `plans`. An open batch is searched with one micro-batch for each copy of the model, of one row where the
    micro-batch is open too: the smallest step. Raises BadInput for a setting that cannot work on the device.
    """
    if workers < 1:
        raise BadInput(f"{workers} workers cannot train", "set resources.workers to 1 or more")
    if task.batch.is_open:
        micro = 1 if task.batch.micro == "auto" else task.batch.micro
        task = task.with_rows(micro * max(1, workers // task.ranks_per_replica))
        site = {**site, "tensor_parallel": (1,)}
    refuse_degree(task, shape, workers)
    refuse_tensor_degree(task, shape, gpu, workers, site.get("gpus_per_node"))
    precision = precision_of(task, gpu)
    flash, liger = site.get("flash_available"), site.get("liger_available", False)
    kernels = kernels_of(task, shape, gpu, precision, flash_package=flash, liger_package=liger)
    return Search(
        task=task,
        shape=shape,
        gpu=gpu,
        workers=workers,
        host_memory_gb=site.get("host_memory_gb"),
        seq_len=min(task.data.max_length, site.get("max_seq") or task.data.max_length),
        precision=precision,
        attention=kernels.attention,
        liger=kernels.liger,
        notes=kernels.notes,
        tensor_parallel=_tensor_degrees(task, shape, gpu, workers, site),
        pipeline_parallel=tuple(site.get("pipeline_parallel", (1,))),
        gpus_per_node=site.get("gpus_per_node", 8),
        network_gb_s=site.get("network_gb_s"),
        calibration=_calibration(site),
        libraries_gb=site.get("libraries_gb", LIBRARIES_GB),
    )


def _calibration(site: Site) -> Calibration:
    given, bandwidth = site.get("calibration", DEFAULT), site.get("host_bandwidth_gb_s")
    return given if bandwidth is None else replace(given, host_bandwidth_gb_s=bandwidth)


def _tensor_degrees(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, site: Site) -> tuple[int, ...]:
    """Degrees that the search may choose from. Context-parallel ranks exchange heads, and hold whole matrices."""
    if task.layout.context_parallel > 1:
        return (1,)
    return tuple(site.get("tensor_parallel") or choices(task, shape, gpu, workers, site.get("gpus_per_node", 8)))


def precision_of(task: TrainTask, gpu: Gpu) -> Precision:
    """The compute precision of a task on a device. Raises BadInput for one that the device does not support."""
    asked = task.layout.precision
    if asked == "auto":
        return "fp32" if gpu.is_cpu else "bf16" if gpu.has_bf16 else "fp16"
    if asked == "bf16" and not gpu.is_cpu and not gpu.has_bf16:
        raise BadInput(f"{gpu.sku} has no bf16", "set strategy.precision to fp16 or auto")
    if asked == "fp16" and gpu.is_cpu:
        raise BadInput("fp16 training does not work on cpu", "set strategy.precision to fp32, bf16 or auto")
    return asked
