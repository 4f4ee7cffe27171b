"""The plan of a train task: every `auto` decided, every explicit setting kept. Pure: the same arguments give the same plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict, Unpack

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import Gpu, ModelShape, attention_kinds
from tuneyard.planning.calibration import DEFAULT, Calibration
from tuneyard.planning.context import refuse_degree
from tuneyard.planning.memory import LIBRARIES_GB
from tuneyard.planning.plan import Plan, Speed
from tuneyard.planning.refusing import refusal
from tuneyard.planning.search import Search
from tuneyard.planning.setup import Attention, Precision
from tuneyard.planning.speed import estimate_speed
from tuneyard.planning.tensor import choices
from tuneyard.planning.tensor import refuse_degree as refuse_tensor_degree

_AS_FAST = 0.98
"""What comes so near to the fastest plan is as fast, as far as a prediction can tell."""
_AS_FAST_ON_CPU = 0.7
"""There, ranks share cores, caches and bandwidth, and what DeepSpeed costs beside DDP is not in the estimate."""


class Site(TypedDict, total=False):
    """What else is known of the place where a task will run."""

    host_memory_gb: float | None
    """What offloading may take per rank; None: not limited."""
    max_seq: int | None
    """The longest row of the data, where it is known."""
    flash_available: bool
    """Whether the kernels of flash attention are installed there."""
    liger_available: bool
    tensor_parallel: Sequence[int]
    """Degrees that may be chosen, by default `tensor.choices`; a degree in the task's strategy goes before."""
    pipeline_parallel: Sequence[int]
    gpus_per_node: int
    network_gb_s: float | None
    """Of a machine; None: what is usual for the SKU."""
    calibration: Calibration
    libraries_gb: float
    """What a rank on `cpu` holds before it loads the model, as ranks have measured it there; by default `memory.LIBRARIES_GB`."""


def resolve(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> Plan:
    """The plan of `task` on `workers` devices of one kind: the simplest of those that are within 2 % of the fastest (`cpu`: 30 %).

    Simplest is: without tensor parallelism, without recomputation, at the lowest ZeRO stage, with the largest micro-batch (a power of two).
    Workers on `cpu` share one machine. Raises BadInput where the global batch does not divide, a setting cannot work on the device, or
    nothing fits: then with the memory it would take, and the smallest change that would fit.
    """
    search = search_of(task, shape, gpu, workers, **site)
    found = search.plans()
    if not found:
        raise refusal(search)
    return best(found)


def plans(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> list[Plan]:
    """All plans of `task` on `workers` devices that fit, fastest first; empty where none fits (`resolve` says why).

    Of plans that differ only in a micro-batch, only the largest that fits is there, unless there is a pipeline. Raises BadInput where the
    global batch does not divide, or a setting cannot work on the device.
    """
    return search_of(task, shape, gpu, workers, **site).plans()


def fits(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> bool:
    """Whether any plan of `task` fits on `workers` devices; False too where `resolve` would refuse a setting. Costs less than `plans`."""
    try:
        return search_of(task, shape, gpu, workers, **site).fits_at_all()
    except BadInput:
        return False


def paced(found: Plan, task: TrainTask, shape: ModelShape, gpu: Gpu, tokens: int, **site: Unpack[Site]) -> Speed:
    """The speed of a plan where rows are `tokens` long, instead of as long as they may be."""
    search = search_of(task, shape, gpu, found.workers, **site)
    return estimate_speed(search.setup(search.layout_of(found, tokens)), search.calibration)


def best(ranked: Iterable[Plan]) -> Plan:
    """The simplest of the plans that are as fast as the fastest, to 2 % (on `cpu`, 30 %). Raises ValueError for none."""
    candidates = list(ranked)
    fastest = max(_tokens_per_s(plan) for plan in candidates)
    as_fast = [plan for plan in candidates if _tokens_per_s(plan) >= (_AS_FAST_ON_CPU if plan.sku == "cpu" else _AS_FAST) * fastest]
    return min(as_fast, key=_complexity)


def _tokens_per_s(plan: Plan) -> float:
    return plan.speed.tokens_per_s if plan.speed else 0.0


def _complexity(plan: Plan) -> tuple[int, int, bool, int, bool, int]:
    within_host = plan.shard_within == "host"
    return plan.pipeline_parallel, plan.tensor_parallel, plan.recompute, plan.zero, within_host, -plan.micro_batch


def search_of(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> Search:
    """The search that `resolve` and `plans` make. Raises BadInput for a setting that cannot work on the device."""
    if workers < 1:
        raise BadInput(f"{workers} workers cannot train", "set resources.workers to 1 or more")
    refuse_degree(task, shape, workers)
    refuse_tensor_degree(task, shape, gpu, site.get("gpus_per_node"))
    return Search(
        task=task,
        shape=shape,
        gpu=gpu,
        workers=workers,
        host_memory_gb=site.get("host_memory_gb"),
        seq_len=min(task.data.max_length, site.get("max_seq") or task.data.max_length),
        precision=_precision(task, gpu),
        attention=_attention(task, shape, gpu, site.get("flash_available", False)),
        liger=_liger(task, gpu, site.get("liger_available", False)),
        tensor_parallel=tuple(site.get("tensor_parallel") or choices(task, shape, gpu, workers, site.get("gpus_per_node", 8))),
        pipeline_parallel=tuple(site.get("pipeline_parallel", (1,))),
        gpus_per_node=site.get("gpus_per_node", 8),
        network_gb_s=site.get("network_gb_s"),
        calibration=site.get("calibration", DEFAULT),
        libraries_gb=site.get("libraries_gb", LIBRARIES_GB),
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


def _attention(task: TrainTask, shape: ModelShape, gpu: Gpu, available: bool) -> Attention:
    asked = task.model.attention
    half = _precision(task, gpu) != "fp32"
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
        # The fused loss multiplies by the head's whole weight, and shifts labels inside of a row.
        return available and not gpu.is_cpu and task.layout.tensor_parallel == 1 and task.layout.context_parallel == 1
    return asked
