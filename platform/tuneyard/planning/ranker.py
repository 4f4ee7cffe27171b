"""The plan of a rank task: tables sharded over the ranks, the dense part replicated or in ZeRO shards, and the memory of a rank. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tuneyard.api import BadInput, RankTask
from tuneyard.catalog import Gpu
from tuneyard.planning.memory import LIBRARIES_GB
from tuneyard.planning.plan import Memory, Plan
from tuneyard.planning.program import least_stage, micro_batches
from tuneyard.planning.ranker_shape import RankerShape
from tuneyard.planning.site import precision_of

_FP32, _FP16 = 4, 2
_ADAM_STATES = {"fp32": 8, "bf16": 4}
"""Bytes of a parameter's two running means."""
_UNSHARDED = ("sequenceParallel", "contextParallel", "tensorParallel")


_PASSING, _OF_CONVOLUTION = 6, 6
"""Gradients that pass through the widest layer, in elements over its width, and those of a convolution's channels besides. Fitted to
measurements; docs/benchmarks/ranker_memory.md judges them by other rankers."""
_HEAP, _MAPPED_BYTES = 1.4, 32 << 20
"""What the C library's heap takes for tensors below this size, which it does not give back at once."""


def plan_of_ranker(task: RankTask, gpu: Gpu, workers: int, *, libraries_gb: float = LIBRARIES_GB) -> Plan:
    """`auto` means the dense part in plain data parallelism (ZeRO 0; the lowest stage that a wanted offload needs), and the whole share of
    a worker as one micro-batch.

    Memory is that of the rank with the largest share of the tables, if they balance. Raises BadInput where the batch does not divide, and
    for a layout that rankers are not trained in.
    """
    layout, batch = task.as_training().layout, task.batch
    if layout.tensor_parallel > 1 or layout.context_parallel > 1 or layout.sequence_parallel:
        raise BadInput(
            f"rankers train data-parallel, with sharded tables: not with {', '.join(_UNSHARDED)}",
            "leave these out; strategy.zero 3 shards the dense part, and tables are sharded always",
        )
    micro, accumulated = micro_batches(batch, workers)
    precision = precision_of(task.as_training(), gpu)
    if precision == "fp16":
        raise BadInput("rankers are not trained in fp16: tables get gradients that no loss scaler sees", "set strategy.precision to fp32")
    within = layout.shard_within == "host"
    least = 3 if within else least_stage(layout.offload)
    zero = least if layout.zero == "auto" else layout.zero
    if within and zero != 3:
        raise BadInput("shardWithin: host shards the dense part by ZeRO-3", "set strategy.zero to 3, or leave it out")
    recompute = layout.recompute is True
    held = memory_of_ranker(task, workers=workers, zero=zero, micro=micro, recompute=recompute, libraries_gb=libraries_gb, gpu=gpu)
    return Plan(
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


@dataclass(frozen=True)
class Held:
    """What a rank holds: on its device, and on its host beside it."""

    memory: Memory
    host_gb: float


def memory_of_ranker(
    task: RankTask, *, workers: int, zero: int, micro: int, recompute: bool, gpu: Gpu, libraries_gb: float = LIBRARIES_GB
) -> Held:
    """Peak memory of one rank. Tables count as weights, and their states as the optimizer's; the copy of a checkpoint that is written while
    training goes on is in host memory, which on cpu is the rank's (`other_gb`).
    """
    shape = RankerShape.of(task)
    total, parts = shape.total, shape.parts
    on_host = task.tables.offload == "cpu" and not gpu.is_cpu
    row_bytes = _FP16 if task.tables.rows == "fp16" else _FP32
    tables = shape.table_elements * row_bytes / workers
    states = shape.state_elements * _FP32 / workers
    weights = total.parameters * _FP32 / (workers if zero == 3 else 1)
    gradients = total.parameters * _FP32 / (workers if zero >= 2 else 1)
    adam = total.parameters * _ADAM_STATES[task.optimizer.states] / (workers if zero >= 1 else 1)
    kept = max(part.kept for part in parts) + shape.embeddings if recompute else total.kept
    passing = _PASSING * shape.widest + (_OF_CONVOLUTION * shape.widest if shape.has_convolution else 0)
    on_heap = gpu.is_cpu and micro * shape.widest * _FP32 < _MAPPED_BYTES
    activations = micro * (kept + passing) * _FP32 * (_HEAP if on_heap else 1.0)
    copied = tables + states + total.parameters * (_FP32 + _ADAM_STATES[task.optimizer.states]) / workers
    memory = Memory(
        weights_gb=(weights + (0 if on_host else tables)) / 1e9,
        gradients_gb=gradients / 1e9,
        optimizer_gb=(adam + (0 if on_host else states)) / 1e9,
        activations_gb=activations / 1e9,
        libraries_gb=libraries_gb if gpu.is_cpu else 0.0,
        other_gb=copied / 1e9 if gpu.is_cpu else 0.0,
    )
    return Held(memory, 0.0 if gpu.is_cpu else (copied + (tables + states if on_host else 0)) / 1e9)
