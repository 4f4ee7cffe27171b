"""The plan of a program. Its model is unknown to the planner, so the plan follows the task, and predicts neither memory nor speed."""

from __future__ import annotations

from typing import Literal

from tuneyard.api import BadInput, Batch, Offload, TrainTask
from tuneyard.catalog import Gpu
from tuneyard.planning.plan import Plan
from tuneyard.planning.site import precision_of

NOT_PREDICTED = "a program brings its own model: memory, speed and cost are not predicted; the report has them once it ran"


def plan_of_program(task: TrainTask, gpu: Gpu, workers: int) -> Plan:
    """The plan of a program. `auto` means plain data parallelism (ZeRO 0, or the lowest stage that supports a requested offload), and one
    micro-batch with a worker's whole share of the batch. After an out-of-memory failure, the next attempt halves it.

    Memory is 0 and speed is None because both are unknown. Raises BadInput where the batch does not divide, or for a layout that programs
    do not support.
    """
    layout, batch = task.layout, task.batch
    if layout.context_parallel > 1 or layout.sequence_parallel:
        raise BadInput(
            "programs train data- and tensor-parallel: not with sequenceParallel or contextParallel",
            "leave these out; strategy.zero 3 shards the weights of a model that is too large for one device",
        )
    within = layout.shard_within == "host"
    if within and layout.zero not in (3, "auto"):
        raise BadInput("shardWithin: host shards by ZeRO-3", "set strategy.zero to 3, or leave it out")
    replicas, left = divmod(workers, layout.tensor_parallel)
    if left:
        raise BadInput(
            f"{workers} workers make no whole number of groups of {layout.tensor_parallel} (tensorParallel)",
            f"set resources.workers to a multiple of {layout.tensor_parallel}",
        )
    micro, accumulated = micro_batches(batch, replicas)
    least = 3 if within else least_stage(layout.offload)
    return Plan(
        sku=gpu.sku,
        workers=workers,
        zero=least if layout.zero == "auto" else layout.zero,
        offload_optimizer=layout.offload.optimizer,
        offload_parameters=layout.offload.parameters,
        nvme_path=layout.offload.nvme_path,
        tensor_parallel=layout.tensor_parallel,
        shard_within="host" if within else "none",
        quantised_all_reduce=layout.quantised_all_reduce,
        precision=precision_of(task, gpu),
        attention="sdpa",
        micro_batch=micro,
        grad_accum=accumulated,
    )


def micro_batches(batch: Batch, replicas: int) -> tuple[int, int]:
    """Rows of a micro-batch, and micro-batches of a step, per replica: one micro-batch where `micro` is auto. Raises BadInput where the
    batch does not divide, or is open.
    """
    if batch.is_open:
        raise BadInput(
            "batch.global: auto is not planned here: the largest batch is searched for language models alone",
            "set batch.global to a number of rows",
        )
    rows, rest = divmod(batch.rows, replicas)
    micro = rows if batch.micro == "auto" else batch.micro
    if rest or rows % micro:
        raise BadInput(
            f"batch.global {batch.rows} does not divide over {replicas} replicas with micro-batches of {micro}",
            f"set batch.global to a multiple of {replicas * micro}",
        )
    return micro, rows // micro


def least_stage(offload: Offload) -> Literal[0, 2, 3]:
    """The lowest ZeRO stage that supports a requested offload."""
    if offload.parameters != "none" or offload.optimizer == "nvme":
        return 3
    return 2 if offload.optimizer != "none" else 0
