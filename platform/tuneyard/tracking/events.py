"""Events of a running task: small frozen records that cross processes, for progress, history and trackers.

A task gets an `Emit` and calls it, without knowing its listeners. Only rank 0 emits, unless an event says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tuneyard.api.attempt_report import RankPlace
from tuneyard.tracking.bottleneck import stall_of


@dataclass(frozen=True, kw_only=True)
class Event:
    task: str


TaskState = Literal["started", "succeeded", "failed", "stopped", "skipped"]


@dataclass(frozen=True, kw_only=True)
class TaskEvent(Event):
    """An attempt at a task began or ended. The driver of the job emits it, not the task.

    `plan` comes with `started` (Plan.to_dict()), `result` with the end (what report.json holds for the task), `failure`
    (a FailureKind) and `message` with `failed`. stopped: asked to stop, goes on with --resume. skipped: done before.
    """

    state: TaskState
    kind: str = ""
    """train, score, tune, rank or process"""
    attempt: int = 1
    plan: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    """What a predictor reads of a train attempt (tuning.settings_row), with `started`."""
    result: dict[str, Any] | None = None
    failure: str = ""
    message: str = ""
    wall_s: float | None = None
    """Length of the attempt, with its end. The recorder measures it, for all that show it."""

    @property
    def ended(self) -> bool:
        return self.state != "started"


ROWS_OF_EVALUATION = "making the rows of the first evaluation"
"""The name of a stage amid training."""


@dataclass(frozen=True, kw_only=True)
class StepsBegin(Event):
    """The first step of an attempt begins. Before it, its ranks have nothing to save when they are asked to stop."""


@dataclass(frozen=True, kw_only=True)
class Stage(Event):
    """Long work outside the steps: loading a model, tokenising, saving. `of` is 0 where the length is not known. `left_s`: seconds to its
    end, as far as they can be told.
    """

    name: str
    done: float = 0
    of: float = 0
    unit: str = ""
    left_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Placed(Event):
    """Pods and nodes of the ranks of a train task, or of the engines of a score task. The driver emits it once all have begun."""

    ranks: tuple[RankPlace, ...]


@dataclass(frozen=True, kw_only=True)
class Preflighted(Event):
    """All ranks reached each other and their storage, in a check before the model was loaded.

    `all_reduce_gb_per_s`: bus bandwidth, as nccl-tests define it; None with one rank.
    """

    seconds: float
    all_reduce_gb_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class TimeSplit:
    """Seconds of one optimizer step by phase. They add up to the step's wall time."""

    data_s: float = 0.0
    forward_s: float = 0.0
    backward_s: float = 0.0
    optimizer_s: float = 0.0
    checkpoint_s: float = 0.0
    other_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Step(Event):
    """One optimizer step, over all workers. `step` counts from 1; `mfu` is a share (0..1).

    Of mixtures of experts: `router_loss`, before its weight and not part of `loss`, and `busiest_expert`, the load of the busiest expert
    over the mean load, as a mean over layers (1: tokens are spread evenly). `rows_per_s`: of a program, which has no tokens. `figures`:
    by name, of an objective that has more than a loss, such as `rewards/accuracy` of preference pairs.
    """

    step: int
    of: int
    loss: float
    learning_rate: float
    tokens: int
    step_s: float
    tokens_per_s: float
    mfu: float
    eta_s: float
    grad_norm: float | None = None
    memory_gb: float | None = None
    router_loss: float | None = None
    busiest_expert: float | None = None
    rows_per_s: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    split: TimeSplit = field(default_factory=TimeSplit)

    @property
    def data_share(self) -> float:
        """Share of the step in which rank 0 waited for data, 0 to 1."""
        return stall_of(asdict(self.split))

    @property
    def split_s(self) -> float:
        """Seconds of all phases of the step, checkpoints and evaluations too."""
        return float(sum(asdict(self.split).values()))

    @property
    def checkpoint_share(self) -> float:
        """Share of the step in which training stood still for a checkpoint, 0 to 1."""
        return self.split.checkpoint_s / self.split_s if self.split_s > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class MachineUsed(Event):
    """What one machine did since it told last, about ten seconds. The first rank of each machine emits it.

    `machine` counts from 0, in the order of ranks. `step`: the last one. `figures`: means by name, in the units of `MachineUse.to_dict`.
    """

    machine: int
    step: int
    figures: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Evaluated(Event):
    """Loss on held-out samples after `step`: mean negative log-likelihood in nats per token that counts, or per label of a ranker.

    `figures`: other figures of the held-out rows, such as a ranker's `normalised_entropy`.
    """

    step: int
    loss: float
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """`0.3412  normalised entropy 0.7431  AUC …`."""
        return "  ".join([f"{self.loss:.4f}", *(f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.figures.items())])


@dataclass(frozen=True, kw_only=True)
class Checkpointed(Event):
    """A checkpoint was committed, `seconds` after its step; training stood still for `blocked_s` of them."""

    step: int
    uri: str
    seconds: float
    bytes: int
    blocked_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Scored(Event):
    """Progress of a score task; rates are over the whole task so far."""

    rows: int
    of: int
    errors: int
    output_tokens_per_s: float
    eta_s: float
    rows_per_s: float | None = None
    """Of a ranker, which writes no tokens."""

    @property
    def rate(self) -> dict[str, float]:
        """The rate of the task by name."""
        return {"output_tokens_per_s": self.output_tokens_per_s} if self.rows_per_s is None else {"rows_per_s": self.rows_per_s}


@dataclass(frozen=True, kw_only=True)
class Charged(Event):
    """Charges of endpoints for this attempt at a score task, by the prices in its JobSpec. It comes before the end of the attempt, also of
    one that fails or is stopped. No token is charged to two attempts."""

    amount: float


@dataclass(frozen=True, kw_only=True)
class Tried(Event):
    """A trial of a tune task has ended. Rates are in `unit`/s over all ranks.

    `settings`: the tried settings, empty for the settings of the file. `gang`: number of the gang that ran it, from 1; 0 where a search has
    one. Trials of several gangs end in any order.
    """

    number: int
    of: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    predicted: float | None = None
    measured: float | None = None
    ratio: float | None = None
    """Over the file's own settings, measured in the same round or pair."""
    failure: str = ""
    seconds: float = 0.0
    unit: str = "tokens"
    gang: int = 0


@dataclass(frozen=True, kw_only=True)
class SampleShown(Event):
    """One training sample: (text, whether it carries loss). It is for people who watch: no sink keeps it.

    `ends_with`: the token at the end of an answer; empty without one; None for samples without answers.
    """

    pieces: tuple[tuple[str, bool], ...]
    ends_with: str | None = None


@dataclass(frozen=True, kw_only=True)
class Warned(Event):
    """A fact for people that does not end the task: a cut sample, a lost engine, a checkpoint that was skipped."""

    message: str


Emit = Callable[[Event], None]


def silent(_event: Event) -> None:
    """An Emit that listens to nothing."""
