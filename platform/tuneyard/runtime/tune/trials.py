"""Runs one trial: a short attempt of a task with given settings, whose speed is kept and whose output is deleted."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tuneyard.api import BadInput, FailureKind, RankTask, Retries, Task, TrainTask, TuneyardError
from tuneyard.api.evaluation import Evaluation
from tuneyard.api.tuned_settings import searched_as
from tuneyard.runtime.environment import hide
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.train.attempt import StoppedBeforeSteps, TrainSetting
from tuneyard.runtime.train.run import run_train
from tuneyard.storage import open_store
from tuneyard.tracking import Event, Placed, Step, TaskEvent
from tuneyard.training.request import TrainRequest
from tuneyard.tuning import Trial

WARM_UP = 0.25
"""Share of a trial's first steps that do not count: caches fill, kernels are chosen, and allocators grow."""
_LEAST_WARM_UP = 2
_STOP_GRACE_S = 30.0
HANG, STOPPED = "Hang", "Stopped"
"""Failures of trials that are no FailureKind: the limit of time has passed; the attempt ended before it had measured anything."""


def short(task: Task, steps: int) -> Task:
    """The task cut to `steps`, without evaluations, and without checkpoints before the last step."""
    if task.rank is not None:
        return _short_ranker(task, task.rank, steps)
    assert task.train is not None
    train = task.train
    changes: dict[str, Any] = {
        "steps": steps,
        "epochs": None,
        "checkpoint": train.checkpoint.model_copy(update={"every_steps": 10 * steps}),
        "data": train.data.model_copy(update={"validation": None, "validation_fraction": 0.0}),
        **({"evaluation": Evaluation()} if searched_as(task) == "program" else {}),  # predictions and metrics need held-out rows
    }
    return task.model_copy(update={"train": train.model_copy(update=changes)})


def _short_ranker(task: Task, rank: RankTask, steps: int) -> Task:
    changes: dict[str, Any] = {
        "steps": steps,
        "epochs": None,
        "checkpoint": rank.checkpoint.model_copy(update={"every_steps": 10 * steps}),
        "validation": None,
        "validation_fraction": 0.0,
        "evaluation": Evaluation(),
        "slices": [],
    }
    return task.model_copy(update={"rank": rank.model_copy(update=changes)})


def in_its_own_order(task: TrainTask, number: int) -> TrainTask:
    """The task as trial `number` of a search over data workers. It reads its data in another order than earlier trials: their cached rows
    would hide the effect of data workers."""
    return task.model_copy(update={"seed": (task.seed + number) % 2**32})


@dataclass(frozen=True)
class _Pace:
    """A step: its tokens, over all workers; tokens per second, over the whole step; the share of its time that waited for data."""

    tokens: int
    tokens_per_s: float
    data_share: float


def _pace_of(event: Step) -> _Pace:
    """The pace of a step; for a ranker or a program with rows instead of tokens."""
    if event.rows_per_s is None:
        return _Pace(max(1, event.tokens), event.tokens_per_s, event.data_share)
    return _Pace(max(1, round(event.rows_per_s * event.step_s)), event.rows_per_s, event.data_share)


@dataclass(frozen=True)
class _Measured:
    """`spread`: half the interquartile range, as a share of the median. `stall`: share of the time that waited for data."""

    tokens_per_s: float
    spread: float
    stall: float


@dataclass
class Listener:
    """Records a trial's steps, and passes them on as steps of `label`: run history keeps them, the job's report does not. The places of its
    ranks are passed on as those of the search: for a hub, an attempt without ranks has not started."""

    search: str
    label: str
    emit: Callable[[Event], None]
    paces: list[_Pace] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Step):
            self.paces.append(_pace_of(event))
            self.emit(replace(event, task=self.label))
        elif isinstance(event, Placed):
            self.emit(replace(event, task=self.search))

    def speed(self, steps: int) -> _Measured | None:
        """The speed over the steps after warm-up; None without such steps. The work of a step counts by its median, which is robust to
        outliers. Waits for data count by their mean: they occur in few steps, and a median would miss them."""
        counted = self.paces[max(_LEAST_WARM_UP, int(WARM_UP * steps)) :]
        if not counted:
            return None
        busy = sorted(pace.tokens_per_s / max(1e-9, 1 - pace.data_share) for pace in counted)
        middle = statistics.median(busy)
        quarter = len(busy) // 4
        waited = sum(pace.tokens * pace.data_share / pace.tokens_per_s for pace in counted) / sum(pace.tokens for pace in counted)
        return _Measured(1 / (1 / middle + waited), (busy[-1 - quarter] - busy[quarter]) / 2 / middle, waited / (1 / middle + waited))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an attempt has measured. `rate`: tokens or rows per second over all devices; None: nothing was measured. `result`: what history
    keeps of it."""

    rate: float | None
    spread: float = 0.0
    result: Mapping[str, Any] = field(default_factory=dict)


Attempted = Callable[[ShouldStop], Outcome]
"""Runs a short attempt until it ends, or a stop is asked for. Raises TuneyardError."""


def observe(number: int, point: Mapping[str, Any], attempt: Attempted, begun: TaskEvent, conditions: Conditions) -> Trial:
    """Run a trial. A failure or a hang (longer than the limit) is a result. `begun`: the event that begins it in history. Raises
    TuneyardError for a failure that is transient on these machines, which ends the search."""
    began = time.monotonic()

    def stop() -> bool:
        return conditions.should_stop() or time.monotonic() - began > conditions.limit_s

    def tell(state: Any, **more: Any) -> None:
        conditions.emit(TaskEvent(task=begun.task, state=state, kind=begun.kind, **more))

    conditions.emit(begun)
    found, failure, message = _outcome(attempt, stop, conditions)
    seconds = time.monotonic() - began
    if seconds > conditions.limit_s and not conditions.should_stop():
        failure, message = HANG, f"not done after {conditions.limit_s:.0f} s"
    if failure or found is None or found.rate is None:
        tell("failed", failure=FailureKind.DEADLINE.value if failure == HANG else failure, message=message)
        why = message.splitlines()[0] if message else ""
        return Trial(number=number, point=dict(point), failure=failure or STOPPED, message=why, seconds=seconds)
    tell("succeeded", result=dict(found.result))
    return Trial(number=number, point=dict(point), tokens_per_s=found.rate, spread=found.spread, seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What trials of a search share. `limit_s`: longest duration. `transient`: kinds of failure that say nothing about settings."""

    emit: Callable[[Event], None]
    limit_s: float
    should_stop: ShouldStop
    transient: Collection[FailureKind]
    secrets: Sequence[str] = ()


def _outcome(attempt: Attempted, stop: ShouldStop, conditions: Conditions) -> tuple[Outcome | None, str, str]:
    """The outcome of an attempt, or the kind and the message of its failure."""
    try:
        return attempt(stop), "", ""
    except BadInput as error:
        return None, FailureKind.USER_ERROR.value, hide(str(error), conditions.secrets)
    except TuneyardError as error:
        if error.kind in conditions.transient:
            raise
        return None, str(error.kind), hide(error.cause, conditions.secrets)


def run_trial(
    number: int,
    point: Mapping[str, Any],
    request: TrainRequest,
    setting: TrainSetting,
    listener: Listener,
    settings: dict[str, Any] | None,
    *,
    limit_s: float,
    should_stop: Callable[[], bool],
) -> Trial:
    """Run a trial of a train or rank task; see `observe`."""
    begun = TaskEvent(
        task=listener.label,
        state="started",
        kind="train" if request.rank is None else "rank",
        plan=request.plan.to_dict(),
        settings=settings,
    )
    conditions = Conditions(
        emit=listener.emit,
        limit_s=limit_s,
        should_stop=should_stop,
        transient=setting.machines.transient,
        secrets=setting.secrets,
    )
    return observe(number, point, lambda stop: _trained(number, request, setting, listener, stop), begun, conditions)


def _trained(number: int, request: TrainRequest, setting: TrainSetting, listener: Listener, should_stop: ShouldStop) -> Outcome:
    """Start the ranks once, and delete their output."""
    alone = replace(setting, retries=Retries(max=0), stop_grace_s=lambda: _STOP_GRACE_S, source=f"trial-{number}-rank")
    with leaving_nothing(request.output, request.scratch):
        try:
            result = run_train(request, alone, listener, should_stop)
        except StoppedBeforeSteps:
            return Outcome(rate=None)
    measured = listener.speed(request.task.steps or 0)
    if measured is None:
        return Outcome(rate=None)
    told = {name: getattr(result, name) for name in ("peak_memory_gb", "mfu", "world_size")}
    program = request.task.program
    of_program = {"program": program, "rows_per_s": measured.tokens_per_s} if program is not None else {}
    details = {**_data_details(result.details), **of_program, "bottleneck": {"stall": measured.stall}}
    return Outcome(
        rate=measured.tokens_per_s, spread=measured.spread, result=told | {"tokens_per_s": measured.tokens_per_s, "details": details}
    )


@contextmanager
def leaving_nothing(output: str, scratch: str) -> Iterator[None]:
    """Around a trial: its output and its scratch folder are deleted in any case."""
    try:
        yield
    finally:
        open_store(output).delete_prefix("")
        shutil.rmtree(scratch, ignore_errors=True)


def _data_details(details: Mapping[str, Any]) -> dict[str, Any]:
    """Details of a trial about data workers, for history."""
    data = details.get("data") or {}
    return {"stream": details["stream"], "data": {"format": data.get("format", "")}} if "stream" in details else {}
