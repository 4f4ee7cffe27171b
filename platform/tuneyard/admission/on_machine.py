"""Obstacles to a job on one machine: its SKU, its GPUs, numbers of workers, rules, and the shapes of its models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tuneyard.admission.combinations import lack_of_layout
from tuneyard.admission.refusal import Refusal
from tuneyard.admission.shapes import Configs
from tuneyard.admission.venues import Machine
from tuneyard.api import BadInput, JobSpec, Task, TrainTask, WorkerRange, check_rules, check_task
from tuneyard.api.worker_counts import WORKERS_ON_CPU, worker_counts
from tuneyard.catalog import ModelShape, canonical_sku, gpu, rules_device
from tuneyard.planning import plan_of_program, plan_of_ranker

ShapeOf = Callable[[Mapping[str, Any]], ModelShape]
"""The shape of a config.json with which a task is planned. Raises BadInput for a model that cannot be planned."""
_OF_COMBINATION = "take one of the combinations that work"


def refusals_on(job: JobSpec, machine: Machine, configs: Configs, shape_of: ShapeOf) -> Iterator[Refusal]:
    """All obstacles to each task on this machine. `job` has only the tasks that run on it."""
    for index, task in enumerate(job.spec.tasks):
        try:
            _check(task, machine, configs.get(task.name, {}), shape_of)
        except BadInput as error:
            yield Refusal(("spec", "tasks", index), error.cause, error.next_step)
    yield from _broken_rules(job, machine, configs, shape_of)


def choose_workers(task: Task, machine: Machine) -> int:
    """Ranks of a train or rank task: the named number, or the largest number that divides the global batch and breaks no rule. For `auto`
    the largest is 2 on cpu, and one per GPU.

    Raises BadInput where the machine has fewer GPUs than asked for, or no number of workers can work.
    """
    training, asked = task.training, task.resources.workers
    assert training is not None
    usual = machine.devices if machine.has_gpus else max(training.ranks_per_replica, min(WORKERS_ON_CPU, machine.devices))
    least = asked.min if isinstance(asked, WorkerRange) else asked if isinstance(asked, int) else min(training.ranks_per_replica, usual)
    if machine.has_gpus and least > machine.devices:
        raise BadInput(
            f"task {task.name} asks for {least} workers, and this machine has {machine.devices} GPUs",
            f"set resources.workers to {machine.devices} or less, or to auto",
        )
    dividing = _dividing(task, training, usual, shares_cores=not machine.has_gpus)
    if not dividing:
        raise _undividable(task, training, least, usual, machine)
    if isinstance(asked, int):
        return asked  # the rules report a named number that breaks one
    broken = {count: check_task(_with_workers(task, count)) for count in dividing}
    working = [count for count in dividing if not broken[count]]
    if not working and not check_task(task):
        reason = f"task {task.name}: no number of workers that batch and machine allow can work; with {dividing[0]}: "
        raise BadInput(f"{reason}{broken[dividing[0]][0].reason}", _OF_COMBINATION)
    return (working or dividing)[0]


def _dividing(task: Task, training: TrainTask, usual: int, *, shares_cores: bool) -> list[int]:
    """Numbers of workers over which the batch divides, best first. Workers may share cores: without a number up to `usual`, the smallest
    number of a range comes first."""
    counts = worker_counts(task, usual=usual, limit=usual)
    if not counts and shares_cores:
        counts = worker_counts(task, usual=usual)[::-1]
    return [count for count in counts if training.divides_over(count)]


def _undividable(task: Task, training: TrainTask, least: int, usual: int, machine: Machine) -> BadInput:
    asked = task.resources.workers
    most = least if isinstance(asked, int) else usual
    if isinstance(asked, WorkerRange):
        most = min(asked.max, machine.devices) if machine.has_gpus else asked.max
    micro = training.batch.micro if isinstance(training.batch.micro, int) else 1
    numbers = str(least) if least >= most else f"{least} to {most}"
    times = "" if micro == 1 else f" times batch.micro {micro}"
    return BadInput(
        f"batch.global {training.batch.rows} of task {task.name} cannot be divided over {numbers} workers{times}",
        f"set batch.global to a multiple of {least * micro}",
    )


def _check(task: Task, machine: Machine, config: Mapping[str, Any], shape_of: ShapeOf) -> None:
    """Raises BadInput for the first obstacle that is not a broken rule."""
    if task.endpoint is not None:
        return  # another server answers
    check_sku(task, machine)
    if task.engine_ranks is not None:
        check_instances(task, machine)
    if task.training is None:
        return
    workers, kind = choose_workers(task, machine), gpu(machine.sku)
    if task.rank is not None:
        plan_of_ranker(task.rank, kind, workers)
    elif task.train is not None and task.train.program is not None:
        plan_of_program(task.train, kind, workers)
    elif task.train is not None and config and not _breaks_rules(task, machine, workers):
        lack = lack_of_layout(task.train, _planned_shape(task, config, shape_of), kind, workers)
        if lack:
            raise BadInput(f"task {task.name}: {lack}", _OF_COMBINATION)


def check_sku(task: Task, machine: Machine) -> None:
    """Raises BadInput where the task names SKUs, and this machine has another one."""
    if task.resources.sku and canonical_sku(machine.sku) not in [canonical_sku(sku) for sku in task.resources.sku]:
        raise BadInput(
            f"task {task.name} asks for {' or '.join(task.resources.sku)}, and this machine is {machine.sku}",
            f"add {machine.sku} to its resources.sku to run it here, or submit the job to a hub: tuneyard submit FILE",
        )


def check_instances(task: Task, machine: Machine) -> None:
    """Raises BadInput where the engines of a score or serve task need more GPUs than the machine has."""
    ranks = task.engine_ranks or 1
    needed = task.resources.instances * ranks
    if machine.has_gpus and needed > machine.devices:
        raise BadInput(
            f"task {task.name} asks for {needed} GPUs (instances x tensorParallel), and this machine has {machine.devices}",
            f"set resources.instances to {max(1, machine.devices // ranks)} or less",
        )


def _broken_rules(job: JobSpec, machine: Machine, configs: Configs, shape_of: ShapeOf) -> Iterator[Refusal]:
    here = job.model_copy(update={"spec": job.spec.model_copy(update={"tasks": [_on(machine, task) for task in job.spec.tasks]})})
    types = {name: str(config["model_type"]) for name, config in configs.items() if config.get("model_type")}
    asked = {task.name for task in job.spec.tasks if task.score is not None}
    sizes = {name: size for name, config in configs.items() if name in asked and (size := _head_size(config, shape_of)) is not None}
    device = rules_device(machine.sku)
    for found in check_rules(here, {machine.sku: device}, local_sku=machine.sku, model_types=types, head_sizes=sizes):
        name = job.spec.tasks[int(found.path[2])].name
        yield Refusal(found.path, f"task {name}: {'.'.join(map(str, found.path[3:]))}: {found.reason}", _OF_COMBINATION)


def _breaks_rules(task: Task, machine: Machine, workers: int) -> bool:
    return bool(check_task(_with_workers(_on(machine, task), workers), device=rules_device(machine.sku)))


def _on(machine: Machine, task: Task) -> Task:
    return task.model_copy(update={"resources": task.resources.model_copy(update={"sku": [machine.sku]})})


def _with_workers(task: Task, workers: int) -> Task:
    return task.model_copy(update={"resources": task.resources.model_copy(update={"workers": workers})})


def _planned_shape(task: Task, config: Mapping[str, Any], shape_of: ShapeOf) -> ModelShape:
    """The shape with which the task will be planned. Raises BadInput for a model that cannot be trained, or planned."""
    try:
        return shape_of(config)
    except BadInput as error:
        raise BadInput(f"task {task.name}: {error.cause}", error.next_step) from error


def _head_size(config: Mapping[str, Any], shape_of: ShapeOf) -> int | None:
    """Head size that an attention kernel must support; None if the model has none, or if it is unknown."""
    try:
        return shape_of(config).kernel_head_size
    except BadInput:
        return None
