"""Building blocks of the rules: a case (one task, with known facts about its device and model), and a rule about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tuneyard.api.score import ScoreTask
from tuneyard.api.tasks import Resources, Task
from tuneyard.api.train import Strategy, TrainTask

Fix = Mapping[str, Any]
"""Settings that make a combination work: dotted field of the task -> value; None: unset the field."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """Facts about a kind of machine that rules need. `catalog` has these facts of every SKU."""

    sku: str
    flash: bool = False
    """FlashAttention 2 runs on it: NVIDIA Ampere (compute capability 8.0) or newer, AMD Instinct MI200 or newer."""
    bf16: bool = True
    is_cpu: bool = False


CPU = Device(sku="cpu", is_cpu=True)
T4 = Device(sku="t4-16gb", flash=False, bf16=False)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One task with known facts. `train` or `score` is the body of the kind that the rule names; for a rank task, `train` is the training
    of its ranks.
    """

    task: Task
    device: Device | None = None
    model_type: str | None = None
    """`model_type` of the model's config.json, if known."""
    head_size: int | None = None
    """Width of the model's attention heads, if known."""

    @property
    def train(self) -> TrainTask:
        training = self.task.training
        assert training is not None
        return training

    @property
    def score(self) -> ScoreTask:
        assert self.task.score is not None
        return self.task.score

    @property
    def strategy(self) -> Strategy:
        return self.train.layout

    @property
    def resources(self) -> Resources:
        return self.task.resources


def of_kind(name: str, kind: str) -> str:
    """The name of a train task's field in another kind of task."""
    return f"rank.{name.removeprefix('train.')}" if kind == "rank" and name.startswith("train.") else name


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One combination that cannot work."""

    id: str
    kind: Literal["train", "score", "rank"]
    refused: str
    """The combination, as a noun phrase."""
    why: str
    field: str
    """Dotted field of the task that the error points at."""
    breaks: Callable[[Case], bool]
    nearest: Callable[[Case], Sequence[Fix]]
    example: Fix
    """Settings, on top of a minimal task, that break this rule and no other."""
    of_rankers: bool = False
    """Whether a rule about train tasks holds for rank tasks too: the same engine trains their dense part, and they have the same fields."""
    example_device: Device | None = None
    example_model_type: str | None = None
    example_head_size: int | None = None
    remedy: str = ""
    """The alternative, if it is no setting of the task; `nearest` is then empty."""

    def judges(self, kind: str) -> bool:
        return kind == self.kind or (kind == "rank" and self.of_rankers)

    def field_of(self, kind: str) -> str:
        return of_kind(self.field, kind)

    def example_case(self, task: Task) -> Case:
        """The example, or its result under a fix, with the example's device and model."""
        return Case(task=task, device=self.example_device, model_type=self.example_model_type, head_size=self.example_head_size)


def always(*fixes: Fix) -> Callable[[Case], Sequence[Fix]]:
    """The same fixes for each case."""
    return lambda _case: fixes
