"""How far a job is: one record per task, folded from its events. Pure.

The report of a run, the state that an attempt reports to its hub, and every view of a job are made from these records. A task of a hub is
the same record, read from its status (`progress_status`). `progress_words` says each fact in words.

Numbers are kept to five digits, and are None where they are not finite: JSON, and so an API server, has neither NaN nor infinity, and
a job says the same here and through its hub.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tuneyard.api import JobSpec, PlacementStatus
from tuneyard.api.attempt_report import RankPlace
from tuneyard.api.evaluation import of_a_program
from tuneyard.api.limits import LARGEST_NUMBER
from tuneyard.tracking.events import (
    Charged,
    Checkpointed,
    Evaluated,
    Event,
    MachineUsed,
    Placed,
    Preflighted,
    Scored,
    Stage,
    Step,
    TaskEvent,
    Tried,
    Warned,
)
from tuneyard.tracking.progress.summary import StepSummary

State = Literal["waiting", "queued", "starting", "running", "succeeded", "skipped", "failed", "stopped", "preempted", "cancelled"]
"""`queued`, `preempted` and `cancelled` are states at a hub, `skipped` and `stopped` of a run on this machine."""
Noun = Literal["step", "rows", "trial"]
_WAIT_OVER_S = 60.0
_CHECKPOINTS_OVER_S = 1800.0


@dataclass(frozen=True)
class Count:
    """Optimizer steps, rows or trials that are done, and how many there are."""

    noun: Noun
    done: int
    of: int


@dataclass(frozen=True)
class StageProgress:
    """Work outside the steps. `of` is 0 where the length is not known. `left_s`: seconds to its end, as far as they can be told."""

    name: str
    done: float = 0
    of: float = 0
    unit: str = ""
    left_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class EndedAttempt:
    """An attempt that ended without success. `failure`: a FailureKind."""

    number: int
    state: State = "failed"
    failure: str = ""
    message: str = ""
    node: str = ""
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class TaskProgress:
    """One task. Times are in seconds, by the clock of the caller of `after`."""

    name: str
    kind: str = ""
    state: State = "waiting"
    begun: bool = False
    """Ranks or engines of the attempt have begun."""
    attempt: int = 1
    again: bool = False
    """There was an attempt before this one."""
    began_s: float | None = None
    ended_s: float | None = None
    history: tuple[EndedAttempt, ...] = ()

    stage: StageProgress | None = None
    count: Count | None = None
    eta_s: float | None = None
    loss: float | None = None
    tokens_per_s: float | None = None
    """Of all workers; output tokens of a score task, the best trial's of a search."""
    rows_per_s: float | None = None
    """Of tasks without tokens, in place of `tokens_per_s`."""
    mfu: float | None = None
    data_wait: float | None = None
    """Share of the last minute's steps in which rank 0 waited for data, 0 to 1."""
    checkpoint_wait: float | None = None
    """Share of the last half hour's steps in which training stood still for checkpoints, 0 to 1."""
    checkpoint_s: float | None = None
    """Seconds from the step of the last checkpoint to its commit."""
    machines: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """By machine, what it did last: see `MachineUsed`."""
    checkpoint_step: int = 0
    resumed_from: int | None = None
    """Step that the attempt started at; None before its first step."""
    warning: str = ""
    """The last one."""
    failure: str = ""
    message: str = ""
    """Why it failed; at a hub also why it waits."""

    # Known where the task runs, and not at its hub.
    memory_gb: float | None = None
    errors: int = 0
    held_out_loss: float | None = None
    held_out_step: int = 0
    """Step of the last evaluation, which is told before the step itself."""
    entropy: float | None = None
    """Normalised entropy of a ranker's held-out rows."""
    held_out: tuple[tuple[str, float], ...] = ()
    """Figures of a program's held-out rows, by name."""
    accuracy: float | None = None
    """Share of the last step's preference pairs whose chosen answer has the higher reward."""
    all_reduce_gb_per_s: float | None = None
    ranks: tuple[RankPlace, ...] = ()
    plan: Mapping[str, Any] | None = None
    summary: StepSummary | None = None
    """Of the steps of this attempt; None before the first."""
    settings: Mapping[str, Any] | None = None
    """Settings of the attempt, in the columns that a predictor reads."""
    charged: float | None = None
    """What endpoints charge for this attempt; None: not known, or nothing."""
    trials: tuple[Mapping[str, Any], ...] = ()
    """Trials of a search that this attempt has measured, as report.json holds them."""
    result: Mapping[str, Any] | None = None
    """What report.json holds of the task, once it has ended."""

    # Known at a hub alone.
    placement: PlacementStatus | None = None

    @property
    def at_work(self) -> bool:
        return self.state in ("starting", "running")

    @property
    def fraction(self) -> float | None:
        """0..1 of the task's present work; None where the length is not known."""
        done, of = (self.stage.done, self.stage.of) if self.stage else (self.count.done, self.count.of) if self.count else (0, 0)
        return max(0.0, min(1.0, done / of)) if of else None

    def seconds(self, now_s: float) -> float | None:
        """Length of the attempt; None before it."""
        return None if self.began_s is None else (now_s if self.ended_s is None else self.ended_s) - self.began_s


@dataclass(frozen=True, kw_only=True)
class JobProgress:
    """All tasks of a job, in the order in which they run. The other fields are known at a hub alone."""

    tasks: Mapping[str, TaskProgress]
    label: str = ""
    state: str = ""
    message: str = ""
    starts_s: float | None = None
    """When it is predicted to start, in seconds since 1970."""
    newest: str = ""
    """Name of the task whose attempt is the newest."""


def job_before(job: JobSpec) -> JobProgress:
    """A job before its first event."""
    return JobProgress(tasks={task.name: TaskProgress(name=task.name, kind=task.kind) for task in job.spec.task_order()})


def job_after(job: JobProgress, event: Event, now_s: float) -> JobProgress:
    """The job once `event` has happened. Events of unknown tasks, as of the trials of a search, change nothing."""
    task = job.tasks.get(event.task)
    return job if task is None else replace(job, tasks={**job.tasks, event.task: after(task, event, now_s)})


def after(task: TaskProgress, event: Event, now_s: float) -> TaskProgress:
    """The task once `event` has happened."""
    match event:
        case TaskEvent(state="started"):
            return _started(task, event, now_s)
        case TaskEvent():
            return _ended(task, event, now_s)
        case Stage():
            return replace(task, stage=StageProgress(event.name, event.done, event.of, event.unit, event.left_s))
        case Step():
            return _stepped(task, event)
        case Scored():
            return _scored(task, event)
        case Charged():
            return replace(task, charged=(task.charged or 0.0) + event.amount)
        case Tried():
            return _tried(task, event)
        case Evaluated():
            return _evaluated(task, event)
        case Checkpointed():
            return replace(task, checkpoint_step=max(task.checkpoint_step, event.step), checkpoint_s=finite(event.seconds))
        case Placed():
            return replace(_begun(task), ranks=event.ranks)
        case MachineUsed():
            return replace(task, machines={**task.machines, event.machine: event.figures})
        case Preflighted():
            return replace(task, all_reduce_gb_per_s=event.all_reduce_gb_per_s or task.all_reduce_gb_per_s)
        case Warned():
            return replace(task, warning=event.message)
        case _:
            return task


def finite(value: float | None) -> float | None:
    """`value` to five digits; None where it is not finite, or larger than a status can hold."""
    return float(f"{value:.5g}") if value is not None and abs(value) <= LARGEST_NUMBER else None  # a NaN compares as false


def _started(task: TaskProgress, event: TaskEvent, now_s: float) -> TaskProgress:
    # A start in place is a part of its attempt, whose figures stay.
    kept = task if event.attempt == task.attempt else _before_its_attempt(task)
    # A process task has no ranks: it runs from here on.
    begun = kept.begun or event.kind == "process"
    return replace(
        kept,
        kind=event.kind or task.kind,
        state="running" if begun else "starting",
        begun=begun,
        attempt=event.attempt,
        again=event.attempt > 1,
        began_s=now_s,
        ended_s=None,
        stage=None,
        plan=event.plan,
        settings=event.settings,
        result=None,
        failure="",
        message="",
    )


def _before_its_attempt(task: TaskProgress) -> TaskProgress:
    """The task without the figures of its last attempt."""
    return TaskProgress(
        name=task.name,
        kind=task.kind,
        history=task.history,
        checkpoint_step=task.checkpoint_step,
        warning=task.warning,
        held_out_loss=task.held_out_loss,
        held_out_step=task.held_out_step,
        entropy=task.entropy,
        held_out=task.held_out,
    )


def _ended(task: TaskProgress, event: TaskEvent, now_s: float) -> TaskProgress:
    assert event.state != "started"
    ended = replace(
        task,
        state=event.state,
        attempt=event.attempt,
        ended_s=now_s if event.wall_s is None or task.began_s is None else task.began_s + event.wall_s,
        stage=None,
        failure=event.failure,
        message=event.message,
        result=event.result,
        resumed_from=int((event.result or {}).get("resumed_from") or 0) or task.resumed_from,
    )
    if event.state != "failed":
        return ended
    lost = EndedAttempt(number=event.attempt, failure=event.failure, message=event.message, seconds=ended.seconds(now_s))
    return replace(ended, history=(*task.history, lost))


def _begun(task: TaskProgress) -> TaskProgress:
    return replace(task, begun=True, state="running" if task.state in ("waiting", "starting") else task.state)


def _stepped(task: TaskProgress, event: Step) -> TaskProgress:
    resumed_from = max(0, event.step - 1) if task.resumed_from is None else task.resumed_from
    return replace(
        _begun(task),
        stage=None,
        summary=(task.summary or StepSummary()).after(event),
        count=Count("step", event.step, event.of),
        eta_s=finite(event.eta_s),
        loss=finite(event.loss),
        accuracy=finite(event.figures.get("rewards/accuracy")),
        tokens_per_s=finite(event.tokens_per_s) if event.rows_per_s is None else None,
        rows_per_s=finite(event.rows_per_s),
        mfu=finite(event.mfu),
        memory_gb=finite(event.memory_gb),
        data_wait=_share(task.data_wait, event.data_share, event.step_s, _WAIT_OVER_S),
        checkpoint_wait=_share(task.checkpoint_wait, event.checkpoint_share, event.split_s, _CHECKPOINTS_OVER_S),
        resumed_from=resumed_from,
        checkpoint_step=max(task.checkpoint_step, resumed_from),
    )


def _evaluated(task: TaskProgress, event: Evaluated) -> TaskProgress:
    known = {name: finite(value) for name, value in of_a_program(event.figures).items()}
    return replace(
        task,
        held_out_loss=finite(event.loss),
        held_out_step=event.step,
        entropy=finite(event.figures.get("normalised_entropy")),
        held_out=tuple((name, value) for name, value in known.items() if value is not None),
    )


def _share(before: float | None, share: float, step_s: float, over_s: float) -> float | None:
    """The share of a wait as a moving average over time: a step counts by its length, and a step `over_s` ago counts a third."""
    weight = 1.0 if before is None else 1.0 - math.exp(-max(0.0, step_s) / over_s)
    return finite(weight * share + (1 - weight) * (before or 0.0))


def _scored(task: TaskProgress, event: Scored) -> TaskProgress:
    return replace(
        _begun(task),
        stage=None,
        count=Count("rows", event.rows, event.of),
        eta_s=finite(event.eta_s),
        tokens_per_s=finite(event.output_tokens_per_s) if event.rows_per_s is None else None,
        rows_per_s=finite(event.rows_per_s),
        errors=event.errors,
    )


def _tried(task: TaskProgress, event: Tried) -> TaskProgress:
    measured = finite(event.measured)
    in_rows = event.unit == "rows"
    best = max((rate for rate in (task.rows_per_s if in_rows else task.tokens_per_s, measured) if rate is not None), default=None)
    before = task.count.done if task.count is not None and task.count.noun == "trial" else 0  # trials of several gangs end in any order
    return replace(
        _begun(task),
        stage=None,
        count=Count("trial", max(event.number, before), event.of),
        eta_s=None,
        tokens_per_s=None if in_rows else best,
        rows_per_s=best if in_rows else None,
        trials=_with_trial(task.trials, event),
    )


def _with_trial(trials: tuple[Mapping[str, Any], ...], event: Tried) -> tuple[Mapping[str, Any], ...]:
    """`trials` with this one. Runs of the file's own settings, and runs that confirm a winner, are none: report.json leaves them out."""
    point = dict(event.settings)
    if not point or any(each["point"] == point for each in trials):
        return trials
    rates = {"ratio": finite(event.ratio), "predicted": finite(event.predicted), "tokens_per_s": finite(event.measured)}
    told = {name: value for name, value in {**rates, "failure": event.failure or None}.items() if value is not None}
    return (*trials, {"number": event.number, "point": point, **told})
