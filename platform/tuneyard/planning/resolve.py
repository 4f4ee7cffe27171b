"""The plan of a train task: every `auto` decided, every explicit setting kept. Pure: the same arguments give the same plan."""

from __future__ import annotations

from typing import Unpack

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import Gpu, ModelShape
from tuneyard.planning.change import Question
from tuneyard.planning.choice import best
from tuneyard.planning.open_batch import open_plans
from tuneyard.planning.plan import Plan, Speed
from tuneyard.planning.refusal import refusal
from tuneyard.planning.site import Site, search_of
from tuneyard.planning.speed import estimate_speed


def resolve(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> Plan:
    """The plan of `task` on `workers` devices of one kind: the simplest plan within 2 % of the fastest (`cpu`: 30 %).

    The simplest plan is without tensor parallelism, without recomputation, at the lowest ZeRO stage, with the largest micro-batch (a power
    of two). Where the global batch is open (`auto`), the plan has the largest micro-batch of all, without accumulation. Workers on `cpu`
    share one machine. Raises BadInput where the global batch does not divide, a setting cannot work on the
    device, or nothing fits. The last error has the memory that is needed, and the smallest change that fits.
    """
    found = plans(task, shape, gpu, workers, **site)
    if not found:
        raise refusal(Question(task=task, shape=shape, gpu=gpu, workers=workers, site=site))
    return best(found)


def plans(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> list[Plan]:
    """All plans of `task` on `workers` devices that fit, fastest first; empty where none fits (`resolve` says why).

    Of plans that differ only in the micro-batch, the list has only the largest that fits, except with a pipeline. Where the global batch is
    open, all plans have the largest micro-batch of all. Raises BadInput where the global batch does not divide, or a setting cannot work on
    the device.
    """
    if task.batch.is_open:
        return open_plans(task, shape, gpu, workers, **site)
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
