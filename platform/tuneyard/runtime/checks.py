"""All that can be known to be wrong with a job before anything of it starts."""

from __future__ import annotations

from pathlib import Path

from tuneyard.api import BadInput, Device, JobSpec, Source, Task, check_rules
from tuneyard.catalog import gpu
from tuneyard.runtime.models import read_config
from tuneyard.runtime.placing import Machine, check_instances, check_sku, choose_workers
from tuneyard.runtime.references import named_model, source_of

_NOT_HERE = {
    "rank": "ranking models are not built yet",
}


def check_job(job: JobSpec, *, base_dir: Path, machine: Machine) -> None:
    """Raises BadInput that names the first thing that cannot work: kinds of task, SKUs, workers, rules, models, data.

    What an earlier task of the job makes is not looked for; data on the Hugging Face hub is not either.
    """
    if job.spec.template is not None:
        raise BadInput(
            f"the job takes defaults from the ModelTemplate {job.spec.template}, which lives on a hub", "write them into the job"
        )
    for task in job.spec.tasks:
        if task.kind in _NOT_HERE:
            raise BadInput(f"task {task.name} is a {task.kind} task, and {_NOT_HERE[task.kind]}", "take it out of the job")
        check_sku(task, machine)
        if task.train is not None:
            choose_workers(task, machine)
        if task.tune is not None and job.spec.task(task.tune.task).train is None:
            raise BadInput(f"task {task.name} tunes {task.tune.task}, which is no train task", "name a train task in tune.task")
        if task.score is not None:
            check_instances(task, machine)
    model_types = {task.name: _check_model(task, base_dir) for task in job.spec.tasks}
    _check_combinations(job, machine, {name: model_type for name, model_type in model_types.items() if model_type})
    for task in job.spec.tasks:
        for source in task.sources():
            _check_source(task, source, base_dir)


def _check_combinations(job: JobSpec, machine: Machine, model_types: dict[str, str]) -> None:
    facts = gpu(machine.sku)
    device = Device(sku=facts.sku, flash=facts.has_flash, bf16="bf16" in facts.peak_flops, is_cpu=facts.is_cpu)
    here = job.model_copy(update={"spec": job.spec.model_copy(update={"tasks": [_on(machine, task) for task in job.spec.tasks]})})
    violations = check_rules(here, {machine.sku: device}, local_sku=machine.sku, model_types=model_types)
    if violations:
        lines = [f"task {job.spec.tasks[int(v.path[2])].name}: {'.'.join(str(p) for p in v.path[3:])}: {v.reason}" for v in violations]
        raise BadInput("\n".join(lines), "take one of the combinations that work")


def _on(machine: Machine, task: Task) -> Task:
    return task.model_copy(update={"resources": task.resources.model_copy(update={"sku": [machine.sku]})})


def _check_model(task: Task, base_dir: Path) -> str | None:
    """`model_type` of the task's model, where the job does not make it itself."""
    body = task.train or task.score
    if body is None or body.model.name is None:
        return None
    model_type = read_config(named_model(body.model.name, base_dir), body.model.revision).get("model_type")
    return str(model_type) if model_type else None


def _check_source(task: Task, source: Source, base_dir: Path) -> None:
    from tuneyard.data.sources import locate

    if source.from_task is not None or (source.source or "").startswith("hf://"):
        return
    uri = source_of(source, base_dir, {}).source or ""
    try:
        locate(uri, file_type=source.file_type, split=source.split)
    except BadInput as error:
        raise BadInput(f"data of task {task.name}: {error.cause}", error.next_step) from error
