"""A task of a job: exactly one of train, score, tune, rank, process and serve, and its resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from tuneyard.api.base import Fields, Name, located
from tuneyard.api.data import Source
from tuneyard.api.endpoint import Endpoint
from tuneyard.api.limits import MOST_WORKERS
from tuneyard.api.rank import RankTask
from tuneyard.api.score import ScoreTask
from tuneyard.api.serve import ServeTask
from tuneyard.api.train import Auto, TrainTask

Workers = Annotated[int, Field(ge=1, le=MOST_WORKERS)]
TaskKind = Literal["train", "score", "tune", "rank", "process", "serve"]
LOGS = "logs"
"""Folder of the output that holds the logs of all tasks."""
TASK_KINDS: tuple[TaskKind, ...] = ("train", "score", "tune", "rank", "process", "serve")


class ProcessTask(Fields):
    """Run a command that prepares data. Its files in $TUNEYARD_OUTPUT are kept only if it exits 0."""

    command: list[str] = Field(min_length=1, description="program and arguments; $TUNEYARD_OUTPUT is replaced by the task's output folder")
    working_dir: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="folder in which the command runs: a path or a URI; default: the folder of the JobSpec file, "
        "from which `tuneyard submit` ships the files that the command names",
    )
    timeout_s: float | None = Field(default=None, gt=0, description="seconds after which the command is ended; default: no limit")


class Budget(Fields):
    """Limits of a search, including its pairs."""

    trials: int = Field(default=30, ge=2, description="short runs in total: new settings, the file's own settings, and pairs")
    minutes: float | None = Field(
        default=None, gt=0, description="minutes that the whole search may take; a run that they cut off does not count; default: no limit"
    )
    rounds: int = Field(default=5, ge=1, description="re-runs of the file's own settings, at most, as a reference for the others")
    pairs: int = Field(
        default=3,
        ge=1,
        description="paired runs of the winner and the file's settings at the end; the winner must win all; at most half of all trials",
    )
    at_once: int = Field(
        default=1,
        ge=1,
        le=64,
        description="gangs of a train or rank task that measure side by side, as far as there is room; each runs the file's settings too",
    )


class TuneTask(Fields):
    """Search the settings under which a train, rank or score task runs fastest; the task takes those of the winner."""

    task: Name = Field(description="name of the train, rank or score task to tune")
    searcher: Literal["reinforce", "random", "tpe"] = Field(default="reinforce", description="how the next trials are chosen")
    objective: Literal["tokens_per_s", "cost"] = Field(
        default="tokens_per_s", description="tokens (or rows) per second of all workers or engines, or for each of their devices (cost)"
    )
    budget: Budget = Field(default_factory=Budget)
    steps_per_trial: int = Field(
        default=30, ge=5, description="optimizer steps of a trial of a train or rank task; the first quarter, at least two, is warm-up"
    )
    rows_per_trial: int = Field(default=128, ge=1, description="rows of a trial of a score task: the same random sample in each")
    space: dict[str, list[str | int | float | bool]] = Field(
        default_factory=dict, description="setting -> values to try, instead of the whole space, such as strategy.zero: [1, 2]"
    )


class WorkerRange(Fields):
    """An elastic gang: any number of workers in the range."""

    min: int = Field(ge=1, le=MOST_WORKERS, description="fewest workers")
    max: int = Field(ge=1, le=MOST_WORKERS, description="most workers")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class Resources(Fields):
    """Resources of a task. A worker is a rank: one GPU, or one process on `cpu`."""

    sku: list[str] = Field(default_factory=list, description="acceptable kinds of GPU, by any name of a kind, best first; empty: any")
    workers: Workers | Auto | WorkerRange = Field(
        default="auto", description="ranks of a train or rank task: a number, {min, max}, or auto: the planner chooses"
    )
    instances: int = Field(
        default=1, ge=1, le=MOST_WORKERS, description="engines of a score task; of an endpoint: processes that ask it; 1 for a serve task"
    )


class Task(Fields):
    """One step of a job."""

    name: Name = Field(description="unique within the job; lower-case letters, digits and '-'; not `logs`")
    depends_on: list[Name] = Field(default_factory=list, description="tasks that must have succeeded before; `from` implies it")
    train: TrainTask | None = None
    score: ScoreTask | None = None
    tune: TuneTask | None = None
    rank: RankTask | None = None
    process: ProcessTask | None = None
    serve: ServeTask | None = None
    resources: Resources = Field(default_factory=Resources)

    @field_validator("name")
    @classmethod
    def _leaves_the_logs_alone(cls, name: str) -> str:
        """A task's output is the folder of its name. In `logs` it would mix with the logs of a task named `files` or `parts`."""
        if name == LOGS:
            raise ValueError(f"{LOGS} is the folder of all tasks' logs in the output: choose another name")
        return name

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [kind for kind in TASK_KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(TASK_KINDS)}; found {', '.join(given) or 'none'}")
        return self

    @model_validator(mode="after")
    def _needs_no_gpu(self) -> Self:
        gpus = [sku for sku in self.resources.sku if sku != "cpu"]
        if self.endpoint is not None and gpus:
            raise located(f"an endpoint answers, so the task needs no GPU: leave {', '.join(gpus)} out, or name cpu", "resources", "sku")
        return self

    @property
    def kind(self) -> TaskKind:
        return next(kind for kind in TASK_KINDS if getattr(self, kind) is not None)

    @property
    def training(self) -> TrainTask | None:
        """The training that the ranks of a train or rank task run; None for a task without ranks."""
        return self.train if self.rank is None else self.rank.as_training()

    @property
    def endpoint(self) -> Endpoint | None:
        """The endpoint that answers the rows of a score task; None for all other tasks."""
        return self.score.engine.endpoint if self.score is not None else None

    @property
    def engine_ranks(self) -> int | None:
        """GPUs of one vLLM engine of a score or serve task; None for tasks without engines."""
        if self.serve is not None:
            return self.serve.tensor_parallel
        return self.score.engine.tensor_parallel if self.score is not None and self.endpoint is None else None

    def references(self) -> dict[str, str]:
        """Field path -> name of the task whose output the field uses."""
        found: dict[str, str] = {}
        for kind, body in (("train", self.train), ("score", self.score)):
            if body is not None and body.model.from_task is not None:
                found[f"{kind}.model.from"] = body.model.from_task
        for number, model in enumerate(self.serve.models if self.serve is not None else ()):
            if model.from_task is not None:
                found[f"serve.models.{number}.from"] = model.from_task
        return found | {f"{field}.from": source.from_task for field, source in self.sources().items() if source.from_task is not None}

    def named_tasks(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Each field that names a task: its path inside this task, and that name."""
        yield from ((("dependsOn", index), name) for index, name in enumerate(self.depends_on))
        yield from ((tuple(field.split(".")), name) for field, name in self.references().items())
        if self.tune is not None:
            yield ("tune", "task"), self.tune.task

    def sources(self) -> dict[str, Source]:
        """Sources of the task's data, by the path of the field: `train.data`, `train.data.mix.0`, `train.data.validation`, `score.data`,
        `score.judge.against`, `rank.table`. Tasks of lm-evaluation-harness find their data themselves.
        """
        if self.train is not None:
            return {f"train.data.{field}".rstrip("."): source for field, source in self.train.data.sources().items()}
        if self.rank is not None:
            return {f"rank.{field}": source for field, source in self.rank.sources().items()}
        if self.score is None or self.score.data.lm_eval is not None:
            return {}
        against = self.score.judge.against if self.score.judge is not None else None
        return {"score.data": self.score.data} | ({"score.judge.against": against} if against is not None else {})

    def upstream(self) -> list[str]:
        """Names of all tasks that must have succeeded before this one, in a fixed order."""
        return list(dict.fromkeys([*self.depends_on, *self.references().values()]))
