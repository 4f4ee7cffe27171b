"""Past runs and trials of programs in the history of this platform: they tell memory and speed, which the planner cannot predict."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.api import BadInput, JobSpec, StorageError, Task
from tuneyard.planning import Plan

_LAYOUT = (
    *("sku", "workers", "zero", "offload_optimizer", "offload_parameters", "tensor_parallel", "shard_within", "quantised_all_reduce"),
    *("precision", "micro_batch", "grad_accum"),
)
"""Fields of a plan on which memory and speed of a program depend."""
_WITHOUT_EFFECT = {"data", "epochs", "steps", "checkpoint", "evaluation", "seed", "proof", "batch", "strategy"}
"""Fields of a train task that change neither, beside those that the plan has."""


@dataclass(frozen=True)
class Measured:
    """Figures of a run. `memory_gb`: peak of the fullest rank; on `cpu` its whole process. `rows_per_s`: of all workers."""

    memory_gb: float
    rows_per_s: float


@dataclass(frozen=True)
class PastPrograms:
    """Succeeded attempts, oldest first: `job`, `task`, `spec` of the job, `plan`, `result`."""

    runs: tuple[Mapping[str, Any], ...] = ()

    def like(self, job: JobSpec, task: Task, plan: Plan) -> Measured | None:
        """The figures of the latest run of this task, or trial of a search over it, with the same program, settings and layout. None: there
        is none.
        """
        wanted, layout = _recipe(task), plan.to_dict()
        for run in reversed(self.runs):
            if run["job"] != job.metadata.name or any((run["plan"] or {}).get(name) != layout[name] for name in _LAYOUT):
                continue
            if _recipe_of(run, task.name) != wanted:
                continue
            figures = _measured(run["result"] or {})
            if figures is not None:
                return figures
        return None

    def count(self, job: JobSpec, task: Task) -> int:
        """Runs of this task and trials of searches over it, with the same program and settings, in any layout."""
        wanted = _recipe(task)
        return sum(run["job"] == job.metadata.name and _recipe_of(run, task.name) == wanted for run in self.runs)


def past_programs(warn: Callable[[str], object]) -> PastPrograms:
    """The runs in history. None of them if TUNEYARD_HISTORY is off, or if history cannot be read, which is reported to `warn`."""
    from tuneyard.tracking.history import History, has_history

    try:
        if os.environ.get("TUNEYARD_HISTORY", "on") != "off" and has_history():
            history = History.open()
            found = PastPrograms(tuple(history.program_runs()))
            history.close()
            return found
    except (StorageError, BadInput) as error:
        warn(error.cause)
    return PastPrograms()


def _measured(result: Mapping[str, Any]) -> Measured | None:
    peaks, rate = result.get("peak_memory_gb"), (result.get("details") or {}).get("rows_per_s")
    memory_gb = max(peaks, default=0.0) if isinstance(peaks, list) else peaks
    return Measured(float(memory_gb), float(rate)) if memory_gb and rate else None


def _recipe_of(run: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The recipe of a run of the task `name`, or of a trial of a search over it (`search/3`). None for a run of another task, and for a
    JobSpec that this version cannot read.
    """
    own, _, trial = run["task"].partition("/")
    if not trial and own != name:
        return None
    try:
        tasks = {each.name: each for each in JobSpec.model_validate(run["spec"]).spec.tasks}
    except ValueError:
        return None
    search, earlier = tasks.get(own), tasks.get(name)
    if trial and (search is None or search.tune is None or search.tune.task != name):
        return None
    return _recipe(earlier) if earlier is not None and earlier.train is not None else None


def _recipe(task: Task) -> dict[str, Any]:
    assert task.train is not None
    images = task.train.data.images  # their size is that of batches
    return {**task.train.model_dump(mode="json", exclude=_WITHOUT_EFFECT), "images": images and images.model_dump()}
