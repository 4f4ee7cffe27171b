"""A task of a job: exactly one of train, score, tune, rank and process, and what it runs on."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from tuneyard.api.base import Fields, Name
from tuneyard.api.data import Source
from tuneyard.api.score import ScoreTask
from tuneyard.api.train import Auto, Checkpoint, Count, Optimizer, TrainTask

TaskKind = Literal["train", "score", "tune", "rank", "process"]
TASK_KINDS: tuple[TaskKind, ...] = ("train", "score", "tune", "rank", "process")


class ProcessTask(Fields):
    """Run a command that prepares data. What it writes to $TUNEYARD_OUTPUT is kept only if it exits 0."""

    command: list[str] = Field(min_length=1, description="program and arguments; $TUNEYARD_OUTPUT is replaced by the task's output folder")
    timeout_s: float | None = Field(default=None, gt=0)


class Budget(Fields):
    trials: int = Field(default=20, ge=1)
    minutes: float | None = Field(default=None, gt=0)
    rounds: int = Field(default=5, ge=1)
    pairs: int = Field(default=3, ge=1, description="runs of the winner beside the file's settings, all of which it must win")


class TuneTask(Fields):
    """Search the settings under which a train task runs fastest; the winner becomes its strategy."""

    task: Name = Field(description="name of the train task to tune")
    searcher: Literal["reinforce", "random", "tpe"] = "reinforce"
    objective: Literal["tokens_per_s", "cost"] = "tokens_per_s"
    budget: Budget = Field(default_factory=Budget)
    steps_per_trial: int = Field(default=30, ge=5)
    space: dict[str, list[str | int | float | bool]] = Field(
        default_factory=dict, description="setting -> values to try, instead of the whole space, such as strategy.zero: [1, 2]"
    )


class EnsembleLayer(Fields):
    """One DHEN layer: Norm(Ensemble(modules) + ShortCut)."""

    modules: list[Literal["dlrm", "attention", "convolution", "linear", "dcn"]] = Field(min_length=1)
    width: int = Field(default=128, ge=1)


class RankTask(Fields):
    """Train a DHEN ranker (Zhang et al. 2022) on a wide table."""

    data: Source
    label: str = Field(default="label", description="column with the 0/1 label")
    dense: list[str] = Field(default_factory=list)
    sparse: list[str] = Field(default_factory=list)
    embedding_width: int = Field(default=64, ge=1)
    layers: list[EnsembleLayer] = Field(min_length=1)
    optimizer: Optimizer = Field(default_factory=Optimizer)
    batch: int = Field(default=4096, ge=1, description="rows per optimizer step, over all workers")
    epochs: float = Field(default=1, gt=0)
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    seed: int = Field(default=42, ge=0)


class WorkerRange(Fields):
    """An elastic gang: any number of workers in the range will do."""

    min: int = Field(ge=1)
    max: int = Field(ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class Resources(Fields):
    """What a task runs on. A worker is a rank: one GPU, or one process on `cpu`."""

    sku: list[str] = Field(default_factory=list, description="kinds of machine that would do, best first; empty: any")
    workers: Count | Auto | WorkerRange = Field(default="auto", description="ranks of a train task; auto: the planner chooses within quota")
    instances: int = Field(default=1, ge=1, description="engines of a score task")


class Task(Fields):
    """One step of a job."""

    name: Name
    depends_on: list[Name] = Field(default_factory=list, description="tasks that must have succeeded before; `from` implies it")
    train: TrainTask | None = None
    score: ScoreTask | None = None
    tune: TuneTask | None = None
    rank: RankTask | None = None
    process: ProcessTask | None = None
    resources: Resources = Field(default_factory=Resources)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [kind for kind in TASK_KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(TASK_KINDS)}; found {', '.join(given) or 'none'}")
        return self

    @property
    def kind(self) -> TaskKind:
        return next(kind for kind in TASK_KINDS if getattr(self, kind) is not None)

    def references(self) -> dict[str, str]:
        """Field path -> name of the task whose output it uses."""
        found: dict[str, str] = {}
        for kind, body in (("train", self.train), ("score", self.score), ("rank", self.rank)):
            for field in ("model", "data"):
                reference = getattr(getattr(body, field, None), "from_task", None)
                if reference is not None:
                    found[f"{kind}.{field}.from"] = reference
        if self.train is not None and self.train.data.validation is not None and self.train.data.validation.from_task:
            found["train.data.validation.from"] = self.train.data.validation.from_task
        return found

    def sources(self) -> list[Source]:
        """Where its data come from: of training, of validation, of scoring."""
        if self.train is not None:
            return [self.train.data, *([self.train.data.validation] if self.train.data.validation is not None else [])]
        return [self.score.data] if self.score is not None else []

    def upstream(self) -> list[str]:
        """Names of all tasks that must have succeeded before this one, in a fixed order."""
        return list(dict.fromkeys([*self.depends_on, *self.references().values()]))
