"""Facts about the place where a task will run, and the search for plans there, with the settings that the place and the model decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Unpack

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import Gpu, ModelShape, attention_kinds
from tuneyard.planning.calibration import DEFAULT, Calibration
from tuneyard.planning.context import refuse_degree
from tuneyard.planning.memory import LIBRARIES_GB
from tuneyard.planning.search import Search
from tuneyard.planning.setup import Attention, Precision
from tuneyard.planning.tensor import choices
from tuneyard.planning.tensor import refuse_degree as refuse_tensor_degree


class Site(TypedDict, total=False):
    """Optional facts about the place where a task will run."""

    host_memory_gb: float | None
    """Host memory per rank for offloading; None: not limited."""
    max_seq: int | None
    """The longest row of the data, if known."""
    flash_available: bool
    """Whether flash attention is installed there."""
    liger_available: bool
    tensor_parallel: Sequence[int]
    """Degrees that the search may choose, by default `tensor.choices`. A degree in the task's strategy takes precedence."""
    pipeline_parallel: Sequence[int]
    gpus_per_node: int
    network_gb_s: float | None
    """Network of a machine; None: usual for the SKU."""
    calibration: Calibration
    libraries_gb: float
    """Memory of a rank on `cpu` before it loads the model, as measured there; by default `memory.LIBRARIES_GB`."""


def search_of(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> Search:
    """The search of `resolve` and `plans`. Raises BadInput for a setting that cannot work on the device."""
    if workers < 1:
        raise BadInput(f"{workers} workers cannot train", "set resources.workers to 1 or more")
    refuse_degree(task, shape, workers)
    refuse_tensor_degree(task, shape, gpu, workers, site.get("gpus_per_node"))
    return Search(
        task=task,
        shape=shape,
        gpu=gpu,
        workers=workers,
        host_memory_gb=site.get("host_memory_gb"),
        seq_len=min(task.data.max_length, site.get("max_seq") or task.data.max_length),
        precision=precision_of(task, gpu),
        attention=_attention(task, shape, gpu, site.get("flash_available", False)),
        liger=_liger(task, gpu, site.get("liger_available", False)),
        tensor_parallel=_tensor_degrees(task, shape, gpu, workers, site),
        pipeline_parallel=tuple(site.get("pipeline_parallel", (1,))),
        gpus_per_node=site.get("gpus_per_node", 8),
        network_gb_s=site.get("network_gb_s"),
        calibration=site.get("calibration", DEFAULT),
        libraries_gb=site.get("libraries_gb", LIBRARIES_GB),
    )


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


def _attention(task: TrainTask, shape: ModelShape, gpu: Gpu, available: bool) -> Attention:
    asked = task.model.attention
    half = precision_of(task, gpu) != "fp32"
    has = attention_kinds(shape.model_type)
    if task.layout.context_parallel > 1:
        if asked not in ("auto", "sdpa"):
            raise BadInput(
                f"{asked} attention cannot be split along rows, as contextParallel asks", "set model.attention to auto, which takes sdpa"
            )
        return "sdpa"
    if asked == "auto":
        return "flash" if "flash" in has and available and gpu.has_flash and half else "sdpa" if "sdpa" in has else "eager"
    if asked not in has:
        raise BadInput(f"a {shape.model_type} model has no {asked} attention in transformers", "set model.attention to auto or eager")
    if asked == "flash" and not gpu.has_flash:
        raise BadInput(
            f"{gpu.sku} cannot run flash attention, which needs an NVIDIA GPU of the Ampere generation or newer, "
            "or an AMD Instinct of the MI200 series or newer",
            "set model.attention to auto",
        )
    return asked


def _liger(task: TrainTask, gpu: Gpu, available: bool) -> bool:
    asked = task.layout.liger
    if asked is True and gpu.is_cpu:
        raise BadInput("Liger kernels run on GPUs only", "set strategy.liger to auto")
    if task.layout.context_parallel > 1 and asked is True:
        raise BadInput("Liger's fused loss does not take slices of rows (contextParallel)", "set strategy.liger to auto")
    if asked == "auto":
        # The fused loss multiplies by the head's whole weight, and shifts labels inside a row.
        return available and not gpu.is_cpu and task.layout.tensor_parallel == 1 and task.layout.context_parallel == 1
    return asked
