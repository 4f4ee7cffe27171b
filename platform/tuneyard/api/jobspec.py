"""JobSpec: the goal state of a job, in the one file that a data scientist writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from tuneyard.api.base import EnvVar, Fields, Name, Resource, located
from tuneyard.api.limits import MOST_SECRETS
from tuneyard.api.quantities import Duration, Size
from tuneyard.api.serve import API_KEY
from tuneyard.api.status import JobStatus
from tuneyard.api.tasks import Task
from tuneyard.api.tracking import Tracking
from tuneyard.api.train import Method, TrainTask
from tuneyard.api.tuned_settings import problems_of_search

Priority = Literal["low", "normal", "high", "urgent"]
STORED: Mapping[str, bool] = {"stored": True}
"""pydantic's `context` for an object from an API server. It admits values that older versions accepted."""
ONE_CLUSTER = (
    "a gang runs in one cluster, because its ranks cannot reach ranks in another: leave spread out, "
    "and list several clusters in placement.clusters if the job may run in any of them"
)


class Retries(Fields):
    """Reaction to each kind of failure."""

    max: int = Field(default=3, ge=0, le=100, description="retries of a task after failed attempts; 0: none")
    on_out_of_memory: Literal["shrink", "stop"] = Field(default="shrink", description="shrink: smaller micro-batch, same global batch")
    on_node_failure: Literal["elsewhere", "retry", "stop"] = Field(
        default="elsewhere",
        description="a machine or its network failed. elsewhere: other machines, if there are any; retry: any machine",
    )
    on_user_error: Literal["stop", "retry"] = Field(default="stop", description="the job's own code, data or settings failed")


class Placement(Fields):
    """Optional limits to the hub's choice of placement."""

    clusters: list[Name] = Field(default_factory=list, description="names of the members that may run the job; empty: any")
    skus: list[str] = Field(
        default_factory=list, description="kinds of machine that all tasks may use, such as h100-80gb, 4090, mi300x or cpu; empty: any"
    )
    spread: Annotated[Literal["never"], WithJsonSchema({"type": "string", "pattern": "^never$"})] = Field(
        default="never", description="`never`, and nothing else: all pods of a gang run in one cluster"
    )

    @field_validator("spread", mode="before")
    @classmethod
    def _one_cluster(cls, value: Any, info: ValidationInfo) -> Any:
        if value == "allowed":
            if info.context is STORED:
                return "never"  # the meaning that other values always had
            raise ValueError(ONE_CLUSTER)
        return value


class Storage(Fields):
    """Places to which the job writes."""

    output: str | None = Field(
        default=None,
        description="URI for checkpoints, artifacts and report; default: a folder below runs/, on a hub its own; `tuneyard run --out` wins",
    )
    scratch: Size | None = Field(
        default=None, description="local disk per machine; default: no limit, or 10Gi where scratch volumes have a storage class"
    )


class Job(Fields):
    """The work of the job, and the resources that it may use."""

    team: Name | None = Field(default=None, description="the team whose quota counts; default: the namespace")
    priority: Priority = Field(default="normal", description="higher ones start first, and may preempt lower ones")
    preemptible: bool | None = Field(
        default=None,
        description="whether jobs of higher priority may take its machines; default: true, and false for urgent jobs and for serve tasks",
    )
    deadline: Duration | None = Field(
        default=None, description="time from the first attempt to the end of the job, which keeps its checkpoints; default: none"
    )
    expected_duration: Duration | None = Field(
        default=None,
        description="your guess for one task on a100-80gb: orders the queue, and limits nothing; default: the hub's assumption",
    )
    ttl_after_finished: Duration | None = Field(
        default=None, description="the JobSpec is removed this long after its end; storage stays; default: never"
    )
    template: Name | None = Field(
        default=None, description="ModelTemplate whose defaults this job takes (docs/model-templates.md); default: none"
    )
    retries: Retries = Field(default_factory=Retries)
    placement: Placement = Field(default_factory=Placement)
    image: str | None = Field(default=None, min_length=1, description="container image of all pods; default: the Cluster's, then the hub's")
    setup: list[str] = Field(default_factory=list, description="commands run in every container before Ray starts")
    env: list[EnvVar] = Field(default_factory=list, description="environment variables of every process of the job")
    storage: Storage = Field(default_factory=Storage)
    tracking: Tracking = Field(default_factory=Tracking)
    suspend: bool = Field(default=False, description="hold the job in the queue; a running one is stopped at a checkpoint first")
    cancelled: bool = Field(default=False, description="end the job for good, keep its checkpoints; set by `tuneyard cancel`")
    tasks: list[Task] = Field(min_length=1, max_length=64, description="the steps of the job, 1 to 64, which may depend on each other")

    @field_validator("template")
    @classmethod
    def _is_filled_in(cls, value: str | None) -> str | None:
        """The reader of a JobSpec applies its template first (`templates.filled`). The models know no templates."""
        if value is not None:
            raise ValueError(f"the defaults of the ModelTemplate {value} are not filled in")
        return value

    @field_validator("env")
    @classmethod
    def _names_few_secrets(cls, value: list[EnvVar]) -> list[EnvVar]:
        names = {each.value_from.secret_key_ref.name for each in value if each.value_from is not None}
        if len(names) > MOST_SECRETS:
            raise ValueError(f"names {len(names)} Secrets, and a job may name at most {MOST_SECRETS}: put their keys into fewer Secrets")
        return value

    @model_validator(mode="after")
    def _is_a_dag(self) -> Self:
        self.task_order()
        for index, task in enumerate(self.tasks):
            if task.tune is not None:
                for place, reason in problems_of_search(task.tune, self.gang_of(task), self.tasks):
                    raise located(reason, "tasks", index, "tune", *place)
            self._check_start(task, index)
            if task.serve is not None:
                self._check_server(task, index)
        return self

    def _check_server(self, task: Task, index: int) -> None:
        """A server has one engine, models that tasks of the job train, and a key. It has no end that another task could wait for."""
        for number, model in enumerate(task.serve.models if task.serve is not None else ()):
            source = self.task(model.from_task).train if model.from_task is not None else None
            if model.from_task is not None and (source is None or source.program is not None):
                reason = f"names the task {model.from_task}, which trains no language model: name a train task without a program"
                raise located(reason, "tasks", index, "serve", "models", number, "from")
        if task.resources.instances != 1:
            raise located("a serve task has one engine: leave instances out", "tasks", index, "resources", "instances")
        if waiting := [other.name for other in self.tasks if task.name in self.needs(other)]:
            reason = f"the task {waiting[0]} waits for {task.name}, which serves and does not end: put {waiting[0]} before it"
            raise located(reason, "tasks", index, "serve")
        if not any(variable.name == API_KEY and variable.value_from is not None for variable in self.env):
            secret = f"{{name: {API_KEY}, valueFrom: {{secretKeyRef: {{name: SECRET, key: {API_KEY}}}}}}}"
            raise located(f"needs a key that requests bring: put {secret} into spec.env", "tasks", index, "serve")

    def _check_start(self, task: Task, index: int) -> None:
        """Only a program loads a program's weights, and a ranker scores only tables."""
        body = task.train or task.score
        if body is None or body.model.from_task is None:
            return
        if task.train is not None and self.task(body.model.from_task).rank is not None:
            reason = f"names the task {body.model.from_task}, which trains a ranker: a score task may take it, training starts elsewhere"
            raise located(reason, "tasks", index, task.kind, "model", "from")
        if task.train is not None and task.train.program is not None:
            return
        source = self.task(body.model.from_task).train
        if source is not None and source.program is not None and body.model.path is None:
            what = "vLLM runs language models" if task.score is not None else "fine-tuning starts from a language model"
            reason = f"names the task {body.model.from_task}, which trains by a program: {what}; evaluation.predictions writes predictions"
            raise located(reason, "tasks", index, task.kind, "model", "from")
        if task.train is not None:
            self._check_adapter(task.train, index)

    def _check_adapter(self, train: TrainTask, index: int) -> None:
        """A task that continues an adapter has its rank, alpha and kind. What else an adapter has is known once it is there."""
        start, own = self._method_of_start(train), train.method.adapter
        if start is None or own is None or start.adapter is None:
            return
        place, name = ("tasks", index, "train", "method"), train.model.from_task
        if (start.dora is None) != (train.method.dora is None):
            reason = f"is {train.method.name}, and the adapter of the task {name}, which it continues, is {start.name}: write {start.name}"
            raise located(reason, *place)
        for field in ("rank", "alpha"):
            has, asked = (float(getattr(each, field) or 2 * each.rank) for each in (start.adapter, own))
            if field in own.model_fields_set and has != asked:
                reason = f"is {asked:g}, and the adapter of the task {name}, which it continues, has {has:g}: leave it out"
                raise located(reason, *place, train.method.name, field)

    def _method_of_start(self, train: TrainTask) -> Method | None:
        """How the adapter was made that a train task continues; None for other starts."""
        name = train.model.from_task
        before = self.task(name).train if name is not None and train.model.path is None else None
        if before is None or before.method.adapter is None:
            return None
        return self._method_of_start(before) or before.method

    def task_order(self) -> list[Task]:
        """Tasks with upstream tasks first, otherwise in file order.

        Raises ValueError on duplicate names, unknown names and cycles.
        """
        by_name = {task.name: task for task in self.tasks}
        if len(by_name) != len(self.tasks):
            doubled = next(t.name for i, t in enumerate(self.tasks) if t.name in {u.name for u in self.tasks[:i]})
            raise ValueError(f"two tasks are named {doubled!r}")
        for index, task in enumerate(self.tasks):
            for field, name in task.named_tasks():
                if name not in by_name:
                    raise located(_no_task(name, [other for other in by_name if other != task.name]), "tasks", index, *field)
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
        """Names of a task and of all tasks that must precede it."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            found.add(current := waiting.pop())
            waiting += [up for up in self.needs(self.task(current)) if up not in found]
        return found

    def needs(self, task: Task) -> list[str]:
        """Names of the tasks that must precede `task`. A tune task needs the inputs of the tuned task, and the tuned task needs the
        result.
        """
        if task.tune is not None:
            return [*task.upstream(), *(name for name in self.task(task.tune.task).upstream() if name != task.name)]
        return [*task.upstream(), *(other.name for other in self.tasks if other.tune is not None and other.tune.task == task.name)]

    def below(self, name: str) -> list[Task]:
        """Tasks that need a task, also by way of others, in the order in which they run."""
        return [task for task in self.task_order() if task.name != name and name in self.needed_for(task.name)]

    def gang_of(self, task: Task) -> Task:
        """The task whose ranks an attempt of `task` starts: for a tune task the tuned one, else itself."""
        return self.task(task.tune.task) if task.tune is not None else task

    def task(self, name: str) -> Task:
        return next(task for task in self.tasks if task.name == name)


def _no_task(name: str, others: Sequence[str]) -> str:
    near = get_close_matches(name, others, n=1)
    if not others:
        return f"there is no task {name!r}: the job has no other task"
    return f"{name!r} is none of the other tasks: {', '.join(others)}{f' (did you mean {near[0]}?)' if near else ''}"


class JobSpec(Resource):
    """A job: tasks that fine-tune and score language models, and the resources that they may use."""

    kind: Literal["JobSpec"] = Field(default="JobSpec", description="always JobSpec")
    spec: Job
    status: JobStatus | None = Field(default=None, description="the hub's report; not written by hand")

    @property
    def team(self) -> str:
        return self.spec.team or self.metadata.namespace

    def is_preemptible(self, task: Task) -> bool:
        """Whether jobs of higher priority may take the machines of `task`."""
        if self.spec.preemptible is not None:
            return self.spec.preemptible
        return self.spec.priority != "urgent" and task.serve is None
