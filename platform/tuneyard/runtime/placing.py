"""Detects the devices of this machine, or of the Ray cluster that it has joined."""

from __future__ import annotations

import os
from typing import Any

from tuneyard.admission import Machine
from tuneyard.catalog import entry_of, gpu, keep, local_devices, local_sku, needs_measuring


def this_machine() -> Machine:
    """This machine: its visible GPUs of any kind, or its cores."""
    devices = local_devices()
    if devices[0].sku == "cpu":
        return Machine("cpu", len(os.sched_getaffinity(0)))
    return Machine(devices[0].sku, len(devices))


def machine_of_cluster() -> Machine:
    """The joined Ray cluster: its GPUs, whose kind a node with a GPU tells, or its cores. A head without either does not count."""
    import ray

    total = ray.cluster_resources()
    if gpus := int(total.get("GPU", 0)):
        sku, measurement = ray.get(ray.remote(num_gpus=1)(_local_kind).remote())
        if measurement is not None:
            keep(sku, measurement)  # this process plans for a GPU that this machine may lack
        return Machine(sku, gpus, per_host=gpus_per_host())
    return Machine("cpu", int(total.get("CPU", 1)))


def gpus_per_host() -> int | None:
    """GPUs of the fullest node of the joined Ray cluster; None without a cluster, or without GPUs."""
    import ray

    if not ray.is_initialized():
        return None
    return max((int(node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]), default=0) or None


def _local_kind() -> tuple[str, dict[str, Any] | None]:
    """The SKU of the machine that this runs on, and its measurement if the catalog lacks the SKU."""
    sku = local_sku()
    return sku, entry_of(gpu(sku)) if needs_measuring(sku) and sku != "cpu" else None
