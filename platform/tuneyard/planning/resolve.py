"""The plan of a train task: every `auto` decided, every explicit setting kept. Pure: the same arguments give the same plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import Gpu, ModelShape
from tuneyard.planning.calibration import DEFAULT, Calibration
from tuneyard.planning.plan import Plan
from tuneyard.planning.refusing import refusal
from tuneyard.planning.search import Search
from tuneyard.planning.setup import Attention, Precision

_AS_FAST = 0.98
"""What comes so near to the fastest plan is as fast, as far as a prediction can tell."""
_AS_FAST_ON_CPU = 0.7
"""There, ranks share cores, caches and bandwidth, and what DeepSpeed costs beside DDP is not in the estimate."""


def resolve(
    task: TrainTask,
    shape: ModelShape,
    gpu: Gpu,
    workers: int,
    *,
    host_memory_gb: float | None = None,
    max_seq: int | None = None,
    flash_available: bool = False,
    liger_available: bool = False,
    calibration: Calibration = DEFAULT,
) -> Plan:
    """The plan of `task` on `workers` devices of one kind: the simplest of those that are within 2 % of the fastest (`cpu`: 30 %).

    Simplest is: without recomputation, at the lowest ZeRO stage, with the largest micro-batch (a power of two). `host_memory_gb`: what
    offloading may take per rank; None: not limited. `max_seq`: the longest row of the data, where it is known. `flash_available`,
    `liger_available`: whether the kernels are installed where the task will run. Workers on `cpu` share one machine.
    Raises BadInput where the global batch does not divide, a setting cannot work on the device, or nothing fits: then with the memory it
    would take, and the smallest change that would fit.
    """
    search = search_of(
        task,
        shape,
        gpu,
        workers,
        host_memory_gb=host_memory_gb,
        max_seq=max_seq,
        flash_available=flash_available,
        liger_available=liger_available,
        calibration=calibration,
    )
    found = search.plans()
    if not found:
        raise refusal(search)
    return best(found)


def plans(
    task: TrainTask,
    shape: ModelShape,
    gpu: Gpu,
    workers: int,
    *,
    host_memory_gb: float | None = None,
    max_seq: int | None = None,
    flash_available: bool = False,
    liger_available: bool = False,
    tensor_parallel: Sequence[int] = (1,),
    pipeline_parallel: Sequence[int] = (1,),
    gpus_per_node: int = 8,
    network_gb_s: float | None = None,
    calibration: Calibration = DEFAULT,
) -> list[Plan]:
    """All plans of `task` on `workers` devices that fit, fastest first; empty where none fits (`resolve` says why).

    Of plans that differ only in a micro-batch, only the largest that fits is there, unless there is a pipeline. `tensor_parallel`,
    `pipeline_parallel`: degrees that may be chosen; a degree in the task's strategy goes before. `gpus_per_node`, `network_gb_s`: of a
    machine; None: what is usual for the SKU. Raises BadInput where the global batch does not divide, or a setting cannot work on the
    device.
    """
    search = search_of(
        task,
        shape,
        gpu,
        workers,
        host_memory_gb=host_memory_gb,
        max_seq=max_seq,
        flash_available=flash_available,
        liger_available=liger_available,
        tensor_parallel=tuple(tensor_parallel),
        pipeline_parallel=tuple(pipeline_parallel),
        gpus_per_node=gpus_per_node,
        network_gb_s=network_gb_s,
        calibration=calibration,
    )
    return search.plans()


def best(ranked: Iterable[Plan]) -> Plan:
    """The simplest of the plans that are as fast as the fastest, to 2 % (on `cpu`, 30 %). Raises ValueError for none."""
    candidates = list(ranked)
    fastest = max(_tokens_per_s(plan) for plan in candidates)
    as_fast = [plan for plan in candidates if _tokens_per_s(plan) >= (_AS_FAST_ON_CPU if plan.sku == "cpu" else _AS_FAST) * fastest]
    return min(as_fast, key=_complexity)


def _tokens_per_s(plan: Plan) -> float:
    return plan.speed.tokens_per_s if plan.speed else 0.0


def _complexity(plan: Plan) -> tuple[bool, int, int, int, int]:
    return plan.recompute, plan.pipeline_parallel, plan.tensor_parallel, plan.zero, -plan.micro_batch


def search_of(
    task: TrainTask,
    shape: ModelShape,
    gpu: Gpu,
    workers: int,
    *,
    host_memory_gb: float | None,
    max_seq: int | None,
    flash_available: bool,
    liger_available: bool,
    tensor_parallel: tuple[int, ...] = (1,),
    pipeline_parallel: tuple[int, ...] = (1,),
    gpus_per_node: int = 8,
    network_gb_s: float | None = None,
    calibration: Calibration = DEFAULT,
) -> Search:
    if workers < 1:
        raise BadInput(f"{workers} workers cannot train", "set resources.workers to 1 or more")
    return Search(
        task=task,
        shape=shape,
        gpu=gpu,
        workers=workers,
        host_memory_gb=host_memory_gb,
        seq_len=min(task.data.max_length, max_seq or task.data.max_length),
        precision=_precision(task, gpu),
        attention=_attention(task, gpu, flash_available),
        liger=_liger(task, gpu, liger_available),
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        gpus_per_node=gpus_per_node,
        network_gb_s=network_gb_s,
        calibration=calibration,
    )


def _precision(task: TrainTask, gpu: Gpu) -> Precision:
    asked = task.layout.precision
    if asked == "auto":
        return "fp32" if gpu.is_cpu else "bf16" if gpu.has_bf16 else "fp16"
    if asked == "bf16" and not gpu.is_cpu and not gpu.has_bf16:
        raise BadInput(f"{gpu.sku} has no bf16", "set strategy.precision to fp16 or auto")
    if asked == "fp16" and gpu.is_cpu:
        raise BadInput("fp16 training does not work on cpu", "set strategy.precision to fp32, bf16 or auto")
    return asked


def _attention(task: TrainTask, gpu: Gpu, available: bool) -> Attention:
    asked = task.model.attention
    half = _precision(task, gpu) != "fp32"
    if asked == "auto":
        return "flash" if available and gpu.has_flash and half else "sdpa"
    if asked == "flash" and not gpu.has_flash:
        raise BadInput(
            f"{gpu.sku} cannot run flash attention, which needs an NVIDIA GPU of the Ampere generation or newer",
            "set model.attention to auto",
        )
    return asked


def _liger(task: TrainTask, gpu: Gpu, available: bool) -> bool:
    asked = task.layout.liger
    if asked is True and gpu.is_cpu:
        raise BadInput("Liger kernels run on GPUs only", "set strategy.liger to auto")
    return available and not gpu.is_cpu if asked == "auto" else asked
