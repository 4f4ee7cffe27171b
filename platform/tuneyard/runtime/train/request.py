"""Makes the request of a train or rank task's first attempt, from the task and earlier results, with a plan for the machines."""

from __future__ import annotations

import os
from importlib.util import find_spec

from tuneyard.admission import Machine, choose_workers
from tuneyard.api import Task
from tuneyard.catalog import gpu
from tuneyard.catalog.cpu import machine_memory_gb
from tuneyard.catalog.libraries import measured_libraries_gb
from tuneyard.catalog.measured import known_measurement
from tuneyard.data.shared.place import SharedShards
from tuneyard.planning import Plan
from tuneyard.runtime.models import model_shape
from tuneyard.runtime.references import Start, resolved
from tuneyard.runtime.task_context import TaskContext, with_found
from tuneyard.training.request import TrainRequest


def train_request(task: Task, context: TaskContext, *, gangs: int = 1) -> TrainRequest:
    """The request of a train task's first attempt: with the settings that a tune task found, resolved references, and a plan for these
    machines. `gangs`: number of gangs that share them.

    Raises BadInput.
    """
    task, start = resolved(with_found(task, context.results), context.base_dir, context.results)
    assert task.training is not None
    machines = context.machines
    return TrainRequest(
        job=context.job.metadata.name,
        name=task.name,
        task=task.training,
        rank=task.rank,
        plan=_plan(task, start, machines.machine, gangs),
        model_uri=start.model_uri,
        adapter_uri=start.adapter_uri,
        output=context.output.task_uri(task.name),
        scratch=str(context.scratch / task.name),
        run=f"{machines.run}/{task.name}",
        attempt=machines.first_start(context.job.spec.retries.max),
        network=machines.network,
        shared=SharedShards.from_environment(os.environ, context.job.team),
    )


def _plan(task: Task, start: Start, machine: Machine, gangs: int) -> Plan:
    from tuneyard.planning import LIBRARIES_GB, plan_of_program, plan_of_ranker, resolve

    training, workers = task.training, choose_workers(task, machine)
    assert training is not None
    libraries_gb = measured_libraries_gb() or LIBRARIES_GB
    gpus_per_node = machine.per_host or max(1, machine.devices)
    if task.rank is not None:
        return plan_of_ranker(task.rank, gpu(machine.sku), workers, libraries_gb=libraries_gb, gpus_per_node=gpus_per_node)
    if training.program is not None:
        return plan_of_program(training, gpu(machine.sku), workers)
    return resolve(
        training,
        model_shape(start.model_uri, training.model.revision),
        gpu(machine.sku),
        workers,
        host_memory_gb=(machine.memory_gb or machine_memory_gb()) / (workers * gangs),
        flash_available=find_spec("flash_attn") is not None,
        liger_available=find_spec("liger_kernel") is not None,
        libraries_gb=libraries_gb,
        gpus_per_node=gpus_per_node,
        host_bandwidth_gb_s=(known_measurement("cpu") or {}).get("memory_bandwidth_gb_s"),
    )
