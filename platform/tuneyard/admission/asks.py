"""What a job asks of the scheduler: the same for the hub, `tuneyard why` and `tuneyard submit --dry-run`.

The scheduler's rules (federation) say what an ask is, and which of the things that are known of its duration goes first. The planner
(planning) is one of them, where it can answer: for train tasks with `steps`, and searches over them, of a model whose shape is in the
catalog. Of such models it also says where they fit (`fits`). SKUs and numbers of workers with which a task's settings cannot work are left
out. Nothing is read or asked of anybody for it, so that a hub can do it for every job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache

from tuneyard import federation
from tuneyard.admission.combinations import Combinations
from tuneyard.admission.fits import fits_of
from tuneyard.admission.shapes import shape_of
from tuneyard.api import CPU, BadInput, JobSpec, JobStatus, Task, TrainTask
from tuneyard.catalog import canonical_sku, kinds
from tuneyard.federation import FITS_NEVER, REFERENCE_SKU, Ask, Fits, speed_factor, worlds_of
from tuneyard.planning import best, plans

_START_S = 60.0
"""From a placement to the first step: 41 s were measured on pods with their images there (docs/benchmarks/warm_starts.md)."""
_TRIAL_START_S = 20.0
"""Of one trial of a search, whose gang stays up."""
_REMEMBERED = 4096


def ask_of(job: JobSpec, created: float, task_name: str, status: JobStatus, offered: Collection[str]) -> Ask:
    """The ask of one task of a job. `offered`: SKUs of the clusters, among which a task that names none may be placed."""
    task = job.spec.task(task_name)
    combinations = Combinations.of(job, task)
    fits = fits_of(combinations, offered)
    ask = federation.ask_of(job, created, task_name, status, planned_s(task, combinations, fits), fits)
    return _elsewhere_than(combinations.barred_skus(offered), _with_worlds_that_work(combinations, ask), offered)


def _with_worlds_that_work(combinations: Combinations, ask: Ask) -> Ask:
    """The ask without numbers of workers that break a rule; as it is where all of them do, so that its SKUs are barred with the reason."""
    worlds = combinations.working_counts(ask.worlds)
    return replace(ask, worlds=worlds) if worlds and worlds != ask.worlds else ask


def _elsewhere_than(barred: Mapping[str, str], ask: Ask, offered: Collection[str]) -> Ask:
    """An ask for the SKUs that are left. Where none is, it says why, and waits for one that is not barred."""
    if not barred:
        return ask
    left = [sku for sku in ask.skus or {*map(canonical_sku, offered), CPU.sku} if sku not in barred]
    if ask.skus and left:
        return replace(ask, skus=tuple(left))
    known = dict(ask.least)
    least = {sku: known.get(sku, FITS_NEVER if known else 1) for sku in left} | dict.fromkeys(barred, FITS_NEVER)
    return replace(ask, least=tuple(sorted(least.items())), fit=ask.fit if left else next(iter(barred.values())))


def planned_s(task: Task, combinations: Combinations, fits: Fits | None = None) -> float | None:
    """What a task, or the search `task` over it, is planned to take with its first number of workers on the reference SKU, in seconds; None
    where that is not known.

    Rows are taken to be full, so that padded data take less.
    """
    gang = combinations.task
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
    taken = budget.trials * (_TRIAL_START_S + steps * step_s)
    return _START_S + (min(taken, 60 * budget.minutes) if budget.minutes is not None else taken)


@lru_cache(maxsize=_REMEMBERED)
def _step_s(train: str, name: str, workers: int, skus: tuple[str, ...]) -> float | None:
    """Seconds of a step on the reference SKU, by the plan for it, or else for the first SKU of the task on which it fits."""
    shape = shape_of(name)
    if shape is None:
        return None
    task = TrainTask.model_validate_json(train)
    for sku in (REFERENCE_SKU, *(sku for sku in skus if sku != "cpu")):
        kind = kinds().find(sku)  # `gpu` would look for the device of an unknown SKU on this machine, and measure it
        if kind is None:
            continue
        try:
            found = plans(task, shape, kind, workers)
        except BadInput:  # this layout, or SKU, is none: admission and preflight say why
            continue
        speed = best(found).speed if found else None
        if speed is not None:
            return speed.step_s * speed_factor(sku)
    return None
