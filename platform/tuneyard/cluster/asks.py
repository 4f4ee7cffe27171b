"""What a job asks of the scheduler: the same for the hub, `tuneyard why` and `tuneyard submit --dry-run`.

The scheduler's rules (federation) say what an ask is, and which of the things that are known of its duration goes first. The planner
(planning) is one of them, where it can answer: for train tasks with `steps`, and searches over them, of a model whose shape is in the
catalog. Nothing is read or asked of anybody for it, so that a hub can do it for every job.
"""

from __future__ import annotations

from functools import lru_cache

from tuneyard import federation
from tuneyard.api import BadInput, JobSpec, JobStatus, Task, TrainTask
from tuneyard.catalog import ModelShape, gpu, known_config
from tuneyard.federation import REFERENCE_SKU, Ask, speed_factor, worlds_of
from tuneyard.planning import best, plans

_START_S = 60.0
"""From a placement to the first step: 41 s were measured on pods with their images there (docs/benchmarks/warm_starts.md)."""
_TRIAL_START_S = 20.0
"""Of one trial of a search, whose gang stays up."""
_REMEMBERED = 4096


def ask_of(job: JobSpec, created: float, task_name: str, status: JobStatus) -> Ask:
    """The ask of one task of a job."""
    return federation.ask_of(job, created, task_name, status, planned_s=planned_s(job, job.spec.task(task_name)))


def planned_s(job: JobSpec, task: Task) -> float | None:
    """What a task is planned to take with its first number of workers on the reference SKU, in seconds; None where that is not known.

    Rows are taken to be full, so that padded data take less.
    """
    gang = job.spec.gang_of(task)
    train = gang.train
    skus = tuple(gang.resources.sku or job.spec.placement.skus)
    name = _model_of(job, gang)
    steps = task.tune.steps_per_trial if task.tune is not None else train.steps if train is not None else None
    if train is None or steps is None or name is None or skus == ("cpu",):
        return None
    step_s = _step_s(train.model_dump_json(by_alias=True), name.lower(), worlds_of(gang)[0], skus)
    if step_s is None:
        return None
    if task.tune is None:
        return _START_S + steps * step_s
    budget = task.tune.budget
    taken = budget.trials * (_TRIAL_START_S + steps * step_s)
    return _START_S + (min(taken, 60 * budget.minutes) if budget.minutes is not None else taken)


def _model_of(job: JobSpec, task: Task) -> str | None:
    """The name of the model that a train task starts from, through the train tasks before it; None where it is pinned, or made."""
    body = task.train
    while body is not None and body.model.from_task is not None:
        body = job.spec.task(body.model.from_task).train
    return body.model.name if body is not None and body.model.revision is None else None


@lru_cache(maxsize=_REMEMBERED)
def _step_s(train: str, name: str, workers: int, skus: tuple[str, ...]) -> float | None:
    """Seconds of a step on the reference SKU, by the plan for it, or else for the first SKU of the task on which it fits."""
    config = known_config(name)
    if config is None:
        return None
    task, shape = TrainTask.model_validate_json(train), ModelShape.from_config(config)
    for sku in (REFERENCE_SKU, *(sku for sku in skus if sku != "cpu")):
        try:
            found = plans(task, shape, gpu(sku), workers)
        except BadInput:  # this layout, or SKU, is none: admission and preflight say why
            continue
        speed = best(found).speed if found else None
        if speed is not None:
            return speed.step_s * speed_factor(sku)
    return None
