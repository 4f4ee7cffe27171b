"""Makes the request of a train or rank task's first attempt, from the task and earlier results, with a plan for the machines."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec

from tuneyard.admission import Machine, choose_workers
from tuneyard.api import BadInput, Task
from tuneyard.catalog import gpu
from tuneyard.catalog.cpu import machine_memory_gb
from tuneyard.catalog.libraries import measured_libraries_gb
from tuneyard.catalog.measured import known_measurement
from tuneyard.data.shared.place import SharedShards
from tuneyard.planning import Plan
from tuneyard.runtime.models import model_shape
from tuneyard.runtime.references import Start, resolved
from tuneyard.runtime.task_context import TaskContext, with_found
from tuneyard.storage import open_store
from tuneyard.training.request import TrainRequest
from tuneyard.training.rows_of_step import keep_rows, kept_rows


def train_request(task: Task, context: TaskContext, *, gangs: int = 1) -> TrainRequest:
    """The request of a train task's first attempt: with the settings that a tune task found, resolved references, and a plan for these
    machines. `gangs`: number of gangs that share them.

    Raises BadInput.
    """
    task, start = resolved(with_found(task, context.results), context.base_dir, context.results)
    assert task.training is not None
    machines = context.machines
    training = task.training
    if training.batch.is_open:
        plan = _decided(task, start, context)
        training = training.with_rows(plan.global_batch)
    else:
        plan = _plan(task, start, machines.machine, gangs=gangs)
    return TrainRequest(
        job=context.job.metadata.name,
        name=task.name,
        task=training,
        rank=task.rank,
        plan=plan,
        model_uri=start.model_uri,
        adapter_uri=start.adapter_uri,
        output=context.output.task_uri(task.name),
        scratch=str(context.scratch / task.name),
        run=f"{machines.run}/{task.name}",
        attempt=machines.first_start(context.job.spec.retries.max),
        network=machines.network,
        shared=SharedShards.from_environment(os.environ, context.job.team),
    )


def _decided(task: Task, start: Start, context: TaskContext) -> Plan:
    """The plan of a task with an open batch: with the rows per step of the run, or before its first attempt has decided them, with the
    largest micro-batch that fits here.
    """
    output, machine = open_store(context.output.task_uri(task.name)), context.machine
    decided = kept_rows(output)
    plan = _plan(task, start, machine, decided)
    kept = keep_rows(output, plan)
    return plan if kept == plan.global_batch else _plan(task, start, machine, kept)  # another attempt was faster


def _workers(task: Task, machine: Machine, rows: int | None) -> int:
    """Workers of a task. `rows`: of a step, where the run has decided them; the workers then divide them if any allowed number does."""
    if rows is not None and task.train is not None and not isinstance(task.resources.workers, int):
        with suppress(BadInput):
            return choose_workers(task.model_copy(update={"train": task.train.with_rows(rows, "auto")}), machine)
    return choose_workers(task, machine)


def _plan(task: Task, start: Start, machine: Machine, rows: int | None = None, *, gangs: int = 1) -> Plan:
    """The plan for these machines, which `gangs` gangs share. `rows`: per step, of a task with an open batch whose run has decided them."""
    from tuneyard.planning import LIBRARIES_GB, Site, plan_of_program, plan_of_ranker, plan_with_rows, resolve

    training, workers = task.training, _workers(task, machine, rows)
    assert training is not None
    libraries_gb = measured_libraries_gb() or LIBRARIES_GB
    gpus_per_node = machine.per_host or max(1, machine.devices)
    kind = gpu(machine.sku)
    if task.rank is not None:
        return plan_of_ranker(task.rank, kind, workers, libraries_gb=libraries_gb, gpus_per_node=gpus_per_node)
    if training.program is not None:
        return plan_of_program(training, kind, workers)
    shape = model_shape(start.model_uri, training.model.revision)
    site: Site = {
        "host_memory_gb": (machine.memory_gb or machine_memory_gb()) / (workers * gangs),
        "flash_available": find_spec("flash_attn") is not None,
        "liger_available": find_spec("liger_kernel") is not None,
        "libraries_gb": libraries_gb,
        "gpus_per_node": gpus_per_node,
        "host_bandwidth_gb_s": (known_measurement("cpu") or {}).get("memory_bandwidth_gb_s"),
    }
    if rows is not None:
        return plan_with_rows(training, rows, shape, kind, workers, **site)
    return resolve(training, shape, kind, workers, **site)
