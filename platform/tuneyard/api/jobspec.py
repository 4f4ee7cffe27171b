"""JobSpec: the goal state of a job, and the one file that a data scientist writes."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import Literal, Self

from pydantic import Field, model_validator

from tuneyard.api.base import EnvVar, Fields, Name, Resource
from tuneyard.api.quantities import Duration, Size
from tuneyard.api.status import JobStatus
from tuneyard.api.tasks import Task

Priority = Literal["low", "normal", "high", "urgent"]


class Retries(Fields):
    """What each kind of failure leads to."""

    max: int = Field(default=3, ge=0)
    on_out_of_memory: Literal["shrink", "stop"] = Field(default="shrink", description="shrink: smaller micro-batch, same global batch")
    on_node_failure: Literal["elsewhere", "retry", "stop"] = "elsewhere"
    on_user_error: Literal["stop", "retry"] = "stop"


class Placement(Fields):
    """Limits to the hub's choice; all optional."""

    clusters: list[Name] = Field(default_factory=list)
    skus: list[str] = Field(default_factory=list)
    spread: Literal["never", "allowed"] = Field(
        default="never", description="may a gang cross members; `allowed` is treated as `never` so far"
    )


class Storage(Fields):
    output: str | None = Field(default=None, description="URI for checkpoints, artifacts and the report; `tuneyard run --out` wins over it")
    scratch: Size | None = Field(default=None, description="local disk per machine")


class Comet(Fields):
    """Metrics go to Comet: online with COMET_API_KEY, else into an offline archive that can be uploaded later."""

    project: str = Field(min_length=1)
    workspace: str | None = None
    tags: list[str] = Field(default_factory=list)


class Tracking(Fields):
    comet: Comet | None = None


class Job(Fields):
    """`spec` of a JobSpec."""

    team: Name | None = Field(default=None, description="default: the namespace")
    priority: Priority = "normal"
    preemptible: bool | None = Field(default=None, description="default: true below urgent")
    deadline: Duration | None = Field(default=None, description="ends the job, keeps its checkpoints")
    expected_duration: Duration | None = Field(
        default=None, description="of one task on a100-80gb, as a guess: orders the queue and lets short work pass; nothing ends by it"
    )
    ttl_after_finished: Duration | None = Field(default=None, description="the JobSpec is removed so long after its end; storage stays")
    template: Name | None = Field(default=None, description="ModelTemplate whose defaults this job takes")
    retries: Retries = Field(default_factory=Retries)
    placement: Placement = Field(default_factory=Placement)
    image: str | None = Field(default=None, min_length=1)
    setup: list[str] = Field(default_factory=list, description="commands run in every container before Ray starts")
    env: list[EnvVar] = Field(default_factory=list)
    storage: Storage = Field(default_factory=Storage)
    tracking: Tracking = Field(default_factory=Tracking)
    suspend: bool = Field(default=False, description="hold the job in the queue; a running one is stopped at a checkpoint first")
    cancelled: bool = Field(default=False, description="end the job, keep its checkpoints; what `tuneyard cancel` sets, for good")
    tasks: list[Task] = Field(min_length=1, max_length=64)

    @model_validator(mode="after")
    def _is_a_dag(self) -> Self:
        self.task_order()
        return self

    def task_order(self) -> list[Task]:
        """Tasks in an order that runs upstream first, in file order where that leaves a choice.

        Raises ValueError on doubled names, unknown names and cycles.
        """
        by_name = {task.name: task for task in self.tasks}
        if len(by_name) != len(self.tasks):
            doubled = next(t.name for i, t in enumerate(self.tasks) if t.name in {u.name for u in self.tasks[:i]})
            raise ValueError(f"two tasks are named {doubled!r}")
        for task in self.tasks:
            for name in [*task.upstream(), *([task.tune.task] if task.tune else [])]:
                if name not in by_name:
                    raise ValueError(f"task {task.name!r} refers to {name!r}, which is none of: {', '.join(by_name)}")
        needs = {task.name: self.needs(task) for task in self.tasks}
        sorter = TopologicalSorter(needs)
        try:
            order = list(sorter.static_order())
        except CycleError as error:
            raise ValueError(f"tasks wait for each other: {' -> '.join(error.args[1])}") from None
        position = {task.name: index for index, task in enumerate(self.tasks)}
        depth: dict[str, int] = {}
        for name in order:
            depth[name] = 1 + max((depth[up] for up in needs[name]), default=-1)
        return sorted(self.tasks, key=lambda task: (depth[task.name], position[task.name]))

    def needed_for(self, name: str) -> set[str]:
        """A task and all that must come before it, by name."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            found.add(current := waiting.pop())
            waiting += [up for up in self.needs(self.task(current)) if up not in found]
        return found

    def needs(self, task: Task) -> list[str]:
        """Names of tasks that must come before: a tune task runs on what the tuned task reads, and that one takes what it has found."""
        if task.tune is not None:
            return [*task.upstream(), *(name for name in self.task(task.tune.task).upstream() if name != task.name)]
        return [*task.upstream(), *(other.name for other in self.tasks if other.tune is not None and other.tune.task == task.name)]

    def gang_of(self, task: Task) -> Task:
        """The task whose ranks an attempt of `task` starts: the tuned one of a search, else itself."""
        return self.task(task.tune.task) if task.tune is not None else task

    def task(self, name: str) -> Task:
        return next(task for task in self.tasks if task.name == name)


class JobSpec(Resource):
    """Goal state of a job."""

    kind: Literal["JobSpec"] = "JobSpec"
    spec: Job
    status: JobStatus | None = None

    @property
    def team(self) -> str:
        return self.spec.team or self.metadata.namespace

    @property
    def preemptible(self) -> bool:
        return self.spec.preemptible if self.spec.preemptible is not None else self.spec.priority != "urgent"
