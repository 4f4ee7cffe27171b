"""Plans that decide the rows of a step (`batch.global: auto`): one micro-batch for each copy of the model, the largest that fits.

The number belongs to the run. A later attempt keeps it on any placement, in micro-batches that divide it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import Gpu, ModelShape
from tuneyard.planning.change import Question
from tuneyard.planning.choice import best
from tuneyard.planning.plan import Plan
from tuneyard.planning.refusal import refusal
from tuneyard.planning.site import Site, search_of

_MOST_ROWS = 4096
"""Rows of a micro-batch at which the search for the largest ends: the speed of a step no longer grows with it."""


def open_plans(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> list[Plan]:
    """Plans at the task's micro-batch, or at the largest that fits, fastest first; empty where not one fits. A degree of tensor parallelism
    above 1 has to be named, because it changes the copies that share a step.
    """
    micro = task.batch.micro
    if micro == "auto":
        found = largest(task, shape, gpu, workers, **site)
        return _at(task, found.micro_batch, shape, gpu, workers, **site) if found is not None else []
    return _at(task, micro, shape, gpu, workers, **site)


def largest(task: TrainTask, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> Plan | None:
    """The best plan at the largest micro-batch that fits, in steps of one micro-batch; None where not one row fits.

    `batch` of the task is not used. Raises BadInput where a setting cannot work.
    """
    found: Plan | None = None
    low, high = 0, 1
    while high <= _MOST_ROWS and (fitting := _at(task, high, shape, gpu, workers, **site)):
        low, high, found = high, 2 * high, best(fitting)
    while found is not None and low < _MOST_ROWS and high - low > 1:
        middle = (low + high) // 2
        if fitting := _at(task, middle, shape, gpu, workers, **site):
            low, found = middle, best(fitting)
        else:
            high = middle
    return found


def plan_with_rows(task: TrainTask, rows: int, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> Plan:
    """The plan of a later attempt at a task with an open batch, whose first attempt decided on `rows` per step: in the largest micro-batch
    that divides the rows of a copy of the model and fits. A micro-batch in the task is an upper bound.

    Raises BadInput where the copies do not divide the rows, a setting cannot work on the device, or not one row fits.
    """
    copies = _copies(task, workers)
    share, rest = divmod(rows, copies)
    if rest:
        raise undividable(rows, copies)
    for micro in _divisors(share, share if task.batch.micro == "auto" else task.batch.micro):
        asked = task.with_rows(rows, micro)
        fitting = [plan for plan in search_of(asked, shape, gpu, workers, **site).plans() if plan.data_parallel == copies]
        if fitting:
            return best(fitting)
    raise refusal(Question(task=task.with_rows(rows, 1), shape=shape, gpu=gpu, workers=workers, site=site))


def undividable(rows: int, copies: int) -> BadInput:
    """The error for a later attempt with a number of copies that does not divide the rows of a step."""
    fewer = max(count for count in range(1, copies + 1) if rows % count == 0)
    return BadInput(
        f"the run began with {rows} rows per step (batch.global: auto), and {copies} copies of the model do not divide them",
        f"resume with as many workers as make {fewer} copies, or start over in another output",
    )


def _at(task: TrainTask, micro: int, shape: ModelShape, gpu: Gpu, workers: int, **site: Unpack[Site]) -> list[Plan]:
    """Plans with this micro-batch, and one micro-batch of each copy of the model in a step; fastest first."""
    asked = task.with_rows(micro * _copies(task, workers), micro)
    return [plan for plan in search_of(asked, shape, gpu, workers, **site).plans() if plan.grad_accum == 1]


def _copies(task: TrainTask, workers: int) -> int:
    return max(1, workers // task.ranks_per_replica)


def _divisors(number: int, most: int) -> Iterator[int]:
    """Divisors in descending order, up to `most`."""
    return (each for each in range(min(number, most), 0, -1) if number % each == 0)
