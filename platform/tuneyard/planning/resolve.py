"""The plan of a train task: every `auto` decided, every explicit setting kept. Pure: the same arguments give the same plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import Gpu, ModelShape
from tuneyard.planning.change import Question
from tuneyard.planning.plan import Plan, Speed
from tuneyard.planning.refusal import refusal
from tuneyard.planning.site import Site, search_of
from tuneyard.planning.speed import estimate_speed

_AS_FAST = 0.98
"""A plan at this share of the fastest plan's speed counts as equally fast: predictions are no more exact."""
_AS_FAST_ON_CPU = 0.7
"""The same on `cpu`, where ranks share cores, caches and bandwidth, and the estimate lacks DeepSpeed's overhead over DDP."""


def resolve(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> Plan:
    """The plan of `task` on `workers` devices of one kind: the simplest plan within 2 % of the fastest (`cpu`: 30 %).

    The simplest plan is without tensor parallelism, without recomputation, at the lowest ZeRO stage, with the largest micro-batch (a power
    of two). Workers on `cpu` share one machine. Raises BadInput where the global batch does not divide, a setting cannot work on the
    device, or nothing fits. The last error has the memory that is needed, and the smallest change that fits.
    """
    question = Question(task=task, shape=shape, gpu=gpu, workers=workers, site=site)
    found = question.search().plans()
    if not found:
        raise refusal(question)
    return best(found)


def plans(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> list[Plan]:
    """All plans of `task` on `workers` devices that fit, fastest first; empty where none fits (`resolve` says why).

    Of plans that differ only in the micro-batch, the list has only the largest that fits, except with a pipeline. Raises BadInput where the
    global batch does not divide, or a setting cannot work on the device.
    """
    return search_of(task, shape, gpu, workers, **site).plans()


def fits(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> bool:
    """Whether any plan of `task` fits on `workers` devices; False too where `resolve` refuses a setting. Costs less than `plans`."""
    try:
        return search_of(task, shape, gpu, workers, **site).fits_at_all()
    except BadInput:
        return False


def check_layout(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> None:
    """Raises BadInput where no layout of `task` can work on `workers` devices, regardless of memory: a degree does not divide the heads,
    the workers do not divide the batch, or the device does not support a setting.
    """
    search_of(task, shape, gpu, workers, **site).check()


def paced(found: Plan, task: TrainTask, shape: ModelShape, gpu: Gpu, tokens: int, **site: Unpack[Site]) -> Speed:
    """The speed of a plan with rows of `tokens` tokens, instead of the maximal length."""
    search = search_of(task, shape, gpu, found.workers, **site)
    return estimate_speed(search.setup(search.layout_of(found, tokens)), search.calibration)


def best(ranked: Iterable[Plan]) -> Plan:
    """The simplest plan within 2 % of the fastest (on `cpu`, 30 %). Raises ValueError for no plans."""
    candidates = list(ranked)
    fastest = max(_tokens_per_s(plan) for plan in candidates)
    as_fast = [plan for plan in candidates if _tokens_per_s(plan) >= (_AS_FAST_ON_CPU if plan.sku == "cpu" else _AS_FAST) * fastest]
    return min(as_fast, key=_complexity)


def _tokens_per_s(plan: Plan) -> float:
    return plan.speed.tokens_per_s if plan.speed else 0.0


def _complexity(plan: Plan) -> tuple[int, int, bool, int, bool, int]:
    within_host = plan.shard_within == "host"
    return plan.pipeline_parallel, plan.tensor_parallel, plan.recompute, plan.zero, within_host, -plan.micro_batch
