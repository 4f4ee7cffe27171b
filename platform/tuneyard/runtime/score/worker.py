"""Resources of a worker's Ray actor, and the translation of its errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tuneyard.api import FailureKind, JobFailed, TuneyardError
from tuneyard.scoring import ScoreRequest
from tuneyard.warm import shim_command

_NOT_SUPPORTED = re.compile(r"Unsupported .*attention|[Hh]ead.?(size|dim)\w* .*not supported|not supported .*[Hh]ead.?(size|dim)")
"""vLLM's errors for a model without kernels for this device."""


def actor_options(request: ScoreRequest, instances: int, depth: int, server: Path | None) -> dict[str, Any]:
    """Ray's options of one worker: its GPUs, or its share of the cores for all its ranks. `server`: fork server of its process, or None.
    A client of an endpoint stays on the machine of the caller, the head, though more machines may be there.
    vLLM spawns further ranks from that process, so that they run on the same machine."""
    options: dict[str, Any] = {"max_concurrency": depth + 3, "max_restarts": 0, "max_task_retries": 0}
    if request.task.engine.endpoint is not None:
        # It waits for the network, so it needs no cores. Its log is copied from this machine.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        return options | {"num_cpus": 0, "scheduling_strategy": here}
    ranks = request.task.engine.tensor_parallel
    if request.sku != "cpu":
        return options | {"num_cpus": 1, "num_gpus": ranks}
    nodes = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    share = min(sum(nodes) / instances, max(nodes))
    cores = max(1, int(share))
    runtime_env: dict[str, Any] = {"env_vars": {"OMP_NUM_THREADS": str(max(1, cores // ranks))}}
    if server is not None:
        runtime_env["py_executable"] = shim_command(server)
    # If there are more workers than cores, they share cores: with whole cores, some workers would never start.
    return options | {"num_cpus": cores if share >= 1 else share, "runtime_env": runtime_env}


def error_of_worker(error: RayTaskError) -> TuneyardError:
    """The error that the worker's process raised."""
    cause = error.cause
    if isinstance(cause, TuneyardError):
        return cause
    first_line = next(iter(str(cause).splitlines()), "")
    if _NOT_SUPPORTED.search(first_line):
        return JobFailed(f"vLLM does not run this model here: {first_line}", "take another model, or a GPU", kind=FailureKind.INTERNAL)
    return JobFailed(
        f"a worker failed: {type(cause).__name__}: {first_line}", "committed parts are kept: correct the cause, then try again"
    )
