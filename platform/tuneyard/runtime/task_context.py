"""The context that all tasks of a run share, and the record of one task's attempts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuneyard.admission import Machine
from tuneyard.api import JobSpec, Task, TuneyardError
from tuneyard.api.tuned_settings import apply_settings
from tuneyard.planning import Plan
from tuneyard.runtime.environment import hide
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.machines import Machines
from tuneyard.runtime.output import JobOutput
from tuneyard.tracking import Emit, TaskEvent

Result = dict[str, Any]
"""The entry of a task in report.json and result.json; `status` is succeeded or stopped."""


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """`job`: the job with the SKU and workers chosen for these machines. `wanted`: names of the tasks to run. `results`: results of the
    tasks that have succeeded, by name."""

    job: JobSpec
    base_dir: Path
    output: JobOutput
    machines: Machines
    scratch: Path
    secrets: Sequence[str]
    emit: Emit
    should_stop: ShouldStop
    wanted: Collection[str]
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        """SKU and number of the devices that the job may use."""
        return self.machines.machine


def with_found(task: Task, results: Mapping[str, Result]) -> Task:
    """The task with the best settings of an earlier tune task."""
    searches = (result for result in results.values() if result.get("kind") == "tune" and result["tuned"] == task.name)
    found: dict[str, Any] = next((search["best"] for search in searches), {})
    return apply_settings(task, found) if found else task


class Attempts:
    """Reports the start and the failure of each attempt once, and keeps them for the report."""

    def __init__(self, task: Task, context: TaskContext) -> None:
        self._task = task
        self._context = context
        self.made: list[dict[str, Any]] = []

    def begin(self, plan: Plan | None = None, settings: dict[str, Any] | None = None) -> None:
        """Record and report the start of an attempt. `settings`: a train attempt's row for predictors."""
        number = self._context.machines.number(len(self.made) + 1)
        self.made.append({"attempt": number, **({"micro_batch": plan.micro_batch} if plan else {})})
        self._tell(
            TaskEvent(task=self._task.name, state="started", kind=self._task.kind, plan=plan.to_dict() if plan else None, settings=settings)
        )

    def failed(self, error: TuneyardError) -> None:
        """Record and report the failure of the last attempt, unless that is done already."""
        if self.made and "failure" in self.made[-1]:
            return
        message = hide(error.cause, self._context.secrets)
        if self.made:
            self.made[-1] |= {"failure": str(error.kind), "message": message}
        self._tell(TaskEvent(task=self._task.name, state="failed", kind=self._task.kind, failure=str(error.kind), message=message))

    def _tell(self, event: TaskEvent) -> None:
        self._context.emit(replace(event, attempt=self._context.machines.number(len(self.made))))
