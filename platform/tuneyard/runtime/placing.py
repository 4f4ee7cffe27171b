"""Where a task of a local job runs: which SKU this is, how many ranks there are, and the plan of a train task. Pure but for the asking."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from tuneyard.api import BadInput, Resources, Task, WorkerRange
from tuneyard.catalog import canonical_sku, entry_of, gpu, keep, local_devices, local_sku, needs_measuring

WORKERS_ON_CPU = 2
"""`workers: auto` on cpu: enough to run the distributed code that clusters run, few enough for a laptop."""


@dataclass(frozen=True)
class Machine:
    """What a job may use: `devices` GPUs of one SKU, or, on `cpu`, cores. `memory_gb`: host memory of all its machines, where that is
    not this one's. `per_host`: GPUs of its fullest host, where it has several."""

    sku: str
    devices: int
    memory_gb: float | None = None
    per_host: int | None = None

    @property
    def has_gpus(self) -> bool:
        return self.sku != "cpu"


def this_machine() -> Machine:
    """This machine: its visible GPUs, whatever they are, or its cores."""
    devices = local_devices()
    if devices[0].sku == "cpu":
        return Machine("cpu", len(os.sched_getaffinity(0)))
    return Machine(devices[0].sku, len(devices))


def machine_of_cluster() -> Machine:
    """What the joined Ray cluster has: its GPUs, asked for on a node that has one, or its cores. A head that KubeRay starts without
    either is no part of it."""
    import ray

    total = ray.cluster_resources()
    if gpus := int(total.get("GPU", 0)):
        sku, measurement = ray.get(ray.remote(num_gpus=1)(_local_kind).remote())
        if measurement is not None:
            keep(sku, measurement)  # this process plans for a GPU that it may not see
        return Machine(sku, gpus, per_host=gpus_per_host())
    return Machine("cpu", int(total.get("CPU", 1)))


def gpus_per_host() -> int | None:
    """GPUs of the fullest node of the joined Ray cluster; None without a cluster, or without GPUs."""
    import ray

    if not ray.is_initialized():
        return None
    return max((int(node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]), default=0) or None


def _local_kind() -> tuple[str, dict[str, Any] | None]:
    """The SKU of the machine that this runs on, and what was measured of it where the catalog lacks it."""
    sku = local_sku()
    return sku, entry_of(gpu(sku)) if needs_measuring(sku) and sku != "cpu" else None


def check_sku(task: Task, machine: Machine) -> None:
    """Raises BadInput where the task names SKUs and this machine is none of them."""
    if task.resources.sku and canonical_sku(machine.sku) not in [canonical_sku(sku) for sku in task.resources.sku]:
        raise BadInput(
            f"task {task.name} asks for {' or '.join(task.resources.sku)}, and this machine is {machine.sku}",
            f"add {machine.sku} to its resources.sku to run it here, or submit the job to a hub: tuneyard submit FILE",
        )


def choose_workers(task: Task, machine: Machine) -> int:
    """Ranks of a train or rank task: as many as asked for, or (auto) 2 on cpu and one per GPU, as far as the global batch can be divided.

    Raises BadInput where the machine has fewer GPUs than asked for, or the global batch has no room for a row per rank.
    """
    training = task.training
    assert training is not None
    rows, micro = training.batch.global_, training.batch.micro if isinstance(training.batch.micro, int) else 1
    least, most = _asked(task.resources, machine, at_least=training.ranks_per_replica)
    if machine.has_gpus and least > machine.devices:
        raise BadInput(
            f"task {task.name} asks for {least} workers, and this machine has {machine.devices} GPUs",
            f"set resources.workers to {machine.devices} or less, or to auto",
        )
    fitting = [count for count in range(least, most + 1) if training.divides_over(count)]
    if not fitting:
        times = "" if micro == 1 else f" times batch.micro {micro}"
        raise BadInput(
            f"batch.global {rows} of task {task.name} cannot be divided over {_range(least, most)} workers{times}",
            f"set batch.global to a multiple of {least * micro}",
        )
    return fitting[-1]


def _asked(resources: Resources, machine: Machine, *, at_least: int) -> tuple[int, int]:
    usual = machine.devices if machine.has_gpus else max(at_least, min(WORKERS_ON_CPU, machine.devices))
    if isinstance(resources.workers, WorkerRange):
        return resources.workers.min, max(resources.workers.min, min(resources.workers.max, usual))
    if isinstance(resources.workers, int):
        return resources.workers, resources.workers
    return min(at_least, usual), usual


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def check_instances(task: Task, machine: Machine) -> None:
    """Raises BadInput where the engines of a score task need more GPUs than there are."""
    assert task.score is not None
    needed = task.resources.instances * task.score.engine.tensor_parallel
    if machine.has_gpus and needed > machine.devices:
        raise BadInput(
            f"task {task.name} asks for {needed} GPUs (instances x tensorParallel), and this machine has {machine.devices}",
            f"set resources.instances to {max(1, machine.devices // task.score.engine.tensor_parallel)} or less",
        )
