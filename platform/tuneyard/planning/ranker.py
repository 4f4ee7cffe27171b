"""The plan and memory of a rank task: tables are sharded over the ranks; the dense part is replicated or in ZeRO shards. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tuneyard.api import BadInput, RankTask
from tuneyard.catalog import Gpu
from tuneyard.planning.calibration import DEFAULT, Calibration
from tuneyard.planning.memory import GPU_CONTEXT_GB, LIBRARIES_GB
from tuneyard.planning.plan import Memory, Plan
from tuneyard.planning.program import least_stage, micro_batches
from tuneyard.planning.ranker_shape import RankerShape
from tuneyard.planning.ranker_speed import speed_of_ranker
from tuneyard.planning.site import precision_of

_FP32, _FP16 = 4, 2
_ADAM_STATES = {"fp32": 8, "bf16": 4}
"""Bytes of a parameter's two running means."""
_UNSHARDED = ("sequenceParallel", "contextParallel", "tensorParallel")


def plan_of_ranker(
    task: RankTask,
    gpu: Gpu,
    workers: int,
    *,
    libraries_gb: float = LIBRARIES_GB,
    gpus_per_node: int = 8,
    network_gb_s: float | None = None,
    calibration: Calibration = DEFAULT,
) -> Plan:
    """The plan of a rank task. `auto` means plain data parallelism of the dense part (ZeRO 0, or the lowest stage that supports a requested
    offload), and one micro-batch with a worker's whole share of the batch.

    Memory is that of the rank with the largest share of the tables, assuming that they balance. Raises BadInput where the batch does not
    divide, and for a layout that rankers do not support.
    """
    layout, batch = task.as_training().layout, task.batch
    if layout.tensor_parallel > 1 or layout.context_parallel > 1 or layout.sequence_parallel:
        raise BadInput(
            f"rankers train data-parallel, with sharded tables: not with {', '.join(_UNSHARDED)}",
            "leave these out; strategy.zero 3 shards the dense part, and tables are sharded always",
        )
    micro, accumulated = micro_batches(batch, workers)
    # On a GPU without bf16, `auto` means fp32: fp16 needs a loss scaler, and gradients of tables bypass it.
    precision = precision_of(task.as_training(), gpu) if layout.precision != "auto" or gpu.is_cpu or gpu.has_bf16 else "fp32"
    if precision == "fp16":
        raise BadInput("rankers are not trained in fp16: tables get gradients that no loss scaler sees", "set strategy.precision to fp32")
    within = layout.shard_within == "host"
    least = 3 if within else least_stage(layout.offload)
    zero = least if layout.zero == "auto" else layout.zero
    if within and zero != 3:
        raise BadInput("shardWithin: host shards the dense part by ZeRO-3", "set strategy.zero to 3, or leave it out")
    recompute = layout.recompute is True
    held = memory_of_ranker(
        task, workers=workers, zero=zero, micro=micro, accumulated=accumulated, recompute=recompute, libraries_gb=libraries_gb, gpu=gpu
    )
    plan = Plan(
        sku=gpu.sku,
        workers=workers,
        zero=zero,
        offload_optimizer=layout.offload.optimizer,
        offload_parameters=layout.offload.parameters,
        nvme_path=layout.offload.nvme_path,
        shard_within="host" if within else "none",
        quantised_all_reduce=layout.quantised_all_reduce,
        recompute=recompute,
        precision=precision,
        attention="sdpa",
        micro_batch=micro,
        grad_accum=accumulated,
        memory=held.memory,
        host_memory_gb=held.host_gb,
    )
    return replace(
        plan, speed=speed_of_ranker(task, plan, gpu, gpus_per_node=gpus_per_node, network_gb_s=network_gb_s, calibration=calibration)
    )


def room_gb(gpu: Gpu, workers: int) -> float:
    """Memory available to a rank. Ranks on cpu share the machine."""
    return gpu.memory_gb / (workers if gpu.is_cpu else 1)


def refuse_without_room(plan: Plan, gpu: Gpu) -> None:
    """Raises BadInput for a plan that does not fit."""
    room = room_gb(gpu, plan.workers)
    if plan.memory.total_gb > room:
        raise BadInput(
            f"{plan.memory.total_gb:,.1f} GB do not fit into {room:,.1f} GB of {gpu.sku}", "take more workers, or tables.rows: fp16"
        )


_ADAM_STEP = 2
"""Copies of a matrix during an Adam step: the root of its second moment, before and after a division."""
_HEAP_BYTES = 32 << 20
"""Size from which glibc returns a freed tensor's memory to the system (DEFAULT_MMAP_THRESHOLD_MAX)."""
_HEAP_SLACK = 0.8
"""Heap overhead of smaller tensors, relative to their size: holes that the next pass cannot use. The peak of three rankers with all tensors
below that size, over the same with MALLOC_MMAP_THRESHOLD_=1000000, where the heap holds none of them: 1.7 to 1.9.
"""
_UPDATED = 3
"""Copies of the gradients of a step's rows during the tables' step: sums, steps, and the scale of each column."""


@dataclass(frozen=True)
class Held:
    """Memory of a rank, on its device and on its host."""

    memory: Memory
    host_gb: float


def memory_of_ranker(
    task: RankTask,
    *,
    workers: int,
    zero: int,
    micro: int,
    recompute: bool,
    gpu: Gpu,
    accumulated: int = 1,
    libraries_gb: float = LIBRARIES_GB,
) -> Held:
    """Peak memory of one rank: the largest of backward, the optimizer's step and the tables' step. Terms are those of that moment.

    Tables count as weights, and their states as the optimizer's. The copy for a checkpoint that is written during training is in host
    memory; on cpu that is the rank's memory (`other_gb`).
    """
    shape = RankerShape.of(task)
    parameters = shape.parameters
    on_host = task.tables.offload == "cpu" and not gpu.is_cpu
    tables = shape.table_elements * (_FP16 if task.tables.rows == "fp16" else _FP32) / workers
    states = shape.state_elements * _FP32 / workers
    weights = parameters * _FP32 / (workers if zero == 3 else 1)
    adam = parameters * _ADAM_STATES[task.optimizer.states] / (workers if zero >= 1 else 1)
    copied = tables + states + parameters * (_FP32 + _ADAM_STATES[task.optimizer.states]) / workers
    fullest = max(
        _moments(shape, is_cpu=gpu.is_cpu, workers=workers, zero=zero, micro=micro, accumulated=accumulated, recompute=recompute),
        key=lambda each: each.total,
    )
    memory = Memory(
        weights_gb=(weights + (0 if on_host else tables)) / 1e9,
        gradients_gb=fullest.gradients / 1e9,
        optimizer_gb=(adam + (0 if on_host else states)) / 1e9,
        optimizer_step_gb=fullest.step / 1e9,
        activations_gb=fullest.activations / 1e9,
        libraries_gb=libraries_gb if gpu.is_cpu else 0.0,
        other_gb=copied / 1e9 if gpu.is_cpu else GPU_CONTEXT_GB,
    )
    return Held(memory, 0.0 if gpu.is_cpu else (copied + (tables + states if on_host else 0)) / 1e9)


@dataclass(frozen=True)
class _Moment:
    """Bytes of the parts that change in the course of a step."""

    gradients: float
    activations: float = 0.0
    step: float = 0.0

    @property
    def total(self) -> float:
        return self.gradients + self.activations + self.step


def _moments(
    shape: RankerShape, *, is_cpu: bool, workers: int, zero: int, micro: int, accumulated: int, recompute: bool
) -> Iterator[_Moment]:
    buckets = _FP32 * shape.parameters if workers > 1 else 0  # copies of gradients for reduction
    gradients = shape.parameters * _FP32 / (workers if zero >= 2 else 1)
    rows = micro * accumulated
    vectors = rows * shape.vectors * shape.width * _FP32  # gradients of embeddings, until the tables step
    waiting = vectors * (accumulated - 1) / accumulated
    limit = _HEAP_BYTES / (micro * _FP32)
    for moment in shape.moments(recompute=recompute):
        there = gradients if accumulated > 1 else min(moment.gradients * _FP32, gradients)
        elements = moment.elements + (_HEAP_SLACK * moment.below(limit) if is_cpu else 0)
        yield _Moment(there + buckets, waiting + elements * micro * _FP32)
    # Sums of the rows' gradients, their squares or steps, and the scales of columns where a row has several states.
    updated = _UPDATED * min(rows * shape.vectors, sum(shape.table_rows) / workers) * shape.width * _FP32
    yield _Moment(gradients + buckets, vectors, _ADAM_STEP * shape.largest * _FP32)
    yield _Moment(gradients + buckets, vectors, updated)
