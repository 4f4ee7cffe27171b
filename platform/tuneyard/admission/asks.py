"""The asks of a job for the scheduler: the same for the hub, `tuneyard why` and `tuneyard submit --dry-run`.

1. `fits` finds the SKUs and numbers of GPUs on which the model fits, where its shape is in the catalog.
2. The planner (`planning`) predicts the duration of train tasks with `steps` of such models, of searches over them, and of score tasks that
   say how many rows they take.
3. `federation.ask_of` makes the ask, and chooses among the sources of a duration.
4. SKUs and numbers of workers with which the task's settings cannot work are left out (`combinations`).
5. A search asks for all its gangs, and takes any number of them.

No file is read and no server is asked, so that a hub can do this for every job.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tuneyard import federation
from tuneyard.admission.combinations import Combinations
from tuneyard.admission.fits import fits_of
from tuneyard.admission.scoring import scored_s
from tuneyard.admission.shapes import shape_of
from tuneyard.api import CPU, BadInput, JobSpec, JobStatus, Task, TrainTask
from tuneyard.api.limits import MOST_ROWS_PER_STEP
from tuneyard.catalog import ModelShape, canonical_sku, kinds
from tuneyard.federation import FITS_NEVER, REFERENCE_SKU, Ask, Fits, speed_factor, worlds_of
from tuneyard.planning import best, plans

_START_S = 60.0
"""From a placement to the first step. 41 s were measured for pods on nodes with the image (docs/benchmarks/warm_starts.md)."""
_TRIAL_START_S = 20.0
"""The start of one trial of a search, whose gang stays up."""
_REMEMBERED = 4096


def ask_of(job: JobSpec, created: float, task_name: str, status: JobStatus, offered: Collection[str]) -> Ask:
    """The ask of one task of a job. `offered`: SKUs of the clusters, for tasks that name none."""
    job = _with_decided_rows(job, task_name, status)
    task = job.spec.task(task_name)
    combinations = Combinations.of(job, task)
    fits = fits_of(combinations, offered)
    ask = federation.ask_of(job, created, task_name, status, planned_s(task, combinations, fits), fits)
    return _elsewhere_than(combinations.barred_skus(offered), _of_gangs(task, _with_worlds_that_work(combinations, ask)), offered)


def _with_decided_rows(job: JobSpec, task_name: str, status: JobStatus) -> JobSpec:
    """The job with the rows per step that an earlier attempt at a task with an open batch has decided: numbers of workers must divide
    them."""
    task = job.spec.task(task_name)
    if task.train is None or not task.train.batch.is_open:
        return job
    rows = next(filter(None, (_rows_of(each.plan) for each in reversed(status.attempts) if each.task == task_name)), None)
    if rows is None:
        return job
    decided = task.model_copy(update={"train": task.train.with_rows(rows, "auto")})
    tasks = [decided if each.name == task_name else each for each in job.spec.tasks]
    return job.model_copy(update={"spec": job.spec.model_copy(update={"tasks": tasks})})


def _rows_of(plan: Mapping[str, Any]) -> int | None:
    """The rows per step of a plan as an attempt reported it. None: the report has none that can be."""
    taken = [plan.get(name) for name in ("micro_batch", "grad_accum", "workers")]
    shared = [plan.get(name, 1) for name in ("tensor_parallel", "pipeline_parallel", "context_parallel")]
    figures = [each for each in (*taken, *shared) if isinstance(each, int) and 1 <= each <= MOST_ROWS_PER_STEP]
    if len(figures) < len(taken) + len(shared):
        return None
    micro, accumulated, workers = figures[: len(taken)]
    rows = micro * accumulated * (workers // math.prod(figures[len(taken) :]))
    return rows if 1 <= rows <= MOST_ROWS_PER_STEP else None


def _with_worlds_that_work(combinations: Combinations, ask: Ask) -> Ask:
    """The ask without numbers of workers that break a rule. Where all break one, the ask stays as it is: its SKUs are barred, with the
    reason."""
    worlds = combinations.working_counts(ask.worlds)
    return replace(ask, worlds=worlds) if worlds and worlds != ask.worlds else ask


def _of_gangs(task: Task, ask: Ask) -> Ask:
    """The ask of a search for the GPUs of all its gangs, or of fewer: an elastic gang, which starts as the scheduler finds room and quota
    for it. `ask`: for one gang, whose size the author names where there are several."""
    count = task.tune.budget.at_once if task.tune is not None else 1
    return replace(ask, worlds=tuple(gangs * workers for gangs in range(count, 0, -1) for workers in ask.worlds)) if count > 1 else ask


def _elsewhere_than(barred: Mapping[str, str], ask: Ask, offered: Collection[str]) -> Ask:
    """An ask without barred SKUs. Where all SKUs are barred, the ask says why, and waits for another SKU."""
    if not barred:
        return ask
    left = [sku for sku in ask.skus or {*map(canonical_sku, offered), CPU.sku} if sku not in barred]
    if ask.skus and left:
        return replace(ask, skus=tuple(left))
    known = dict(ask.least)
    least = {sku: known.get(sku, FITS_NEVER if known else 1) for sku in left} | dict.fromkeys(barred, FITS_NEVER)
    return replace(ask, least=tuple(sorted(least.items())), fit=ask.fit if left else next(iter(barred.values())))


def planned_s(task: Task, combinations: Combinations, fits: Fits | None = None) -> float | None:
    """Predicted seconds of a task with its first number of workers on the reference SKU; or of the search `task` over it, with all its
    gangs. None: unknown.

    Full rows are assumed: padded data take less time.
    """
    gang = combinations.task
    if gang.score is not None:
        return scored_s(combinations.job, gang)
    train = gang.training
    worlds = fits.worlds if fits is not None else worlds_of(gang)
    skus = combinations.skus or tuple(sku for sku, least in (fits.least if fits is not None else ()) if least <= worlds[0])
    name = combinations.model
    steps = task.tune.steps_per_trial if task.tune is not None else train.steps if train is not None else None
    if train is None or steps is None or name is None or skus == ("cpu",):
        return None
    step_s = _step_s(combinations.essence, name.lower(), worlds[0], skus)
    if step_s is None:
        return None
    if task.tune is None:
        return _START_S + steps * step_s
    budget = task.tune.budget
    taken = budget.trials * (_TRIAL_START_S + steps * step_s) / budget.at_once
    return _START_S + (min(taken, 60 * budget.minutes) if budget.minutes is not None else taken)


@lru_cache(maxsize=_REMEMBERED)
def _step_s(train: str, name: str, workers: int, skus: tuple[str, ...]) -> float | None:
    """Seconds of a step on the reference SKU: from the plan for this SKU, else from that for the first SKU of the task on which it fits."""
    shape = shape_of(name)
    if shape is None:
        return None
    task = TrainTask.model_validate_json(train)
    for sku in (REFERENCE_SKU, *(sku for sku in skus if sku != "cpu")):
        step_s = _step_on(task, shape, sku, workers)
        if step_s is not None:
            return step_s * speed_factor(sku)
    return None


def _step_on(task: TrainTask, shape: ModelShape, sku: str, workers: int) -> float | None:
    kind = kinds().find(sku)  # not `gpu`, which measures this machine's device for an unknown SKU
    if kind is None:
        return None
    try:
        found = plans(task, shape, kind, workers)
    except BadInput:  # no such layout or SKU: admission and preflight say why
        return None
    speed = best(found).speed if found else None
    return speed.step_s if speed is not None else None


def least_s(task: Task, combinations: Combinations, sku: str, workers: int) -> float | None:
    """Predicted seconds of a train task on one SKU. None: unknown. Full rows are assumed, as in `planned_s`."""
    train, name = combinations.task.training, combinations.model
    shape = shape_of(name) if name is not None else None
    if task.tune is not None or train is None or train.steps is None or shape is None:
        return None
    step_s = _step_on(train, shape, sku, workers)
    return _START_S + train.steps * step_s if step_s is not None else None
