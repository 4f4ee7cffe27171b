"""Runs one trial: a short attempt of a train or rank task with given settings, whose speed is kept and whose model is deleted."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tuneyard.api import BadInput, FailureKind, RankTask, Retries, Task, TrainTask, TuneyardError
from tuneyard.api.evaluation import Evaluation
from tuneyard.runtime.environment import hide
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.train.attempt import TrainSetting
from tuneyard.runtime.train.run import run_train
from tuneyard.storage import open_store
from tuneyard.tracking import Event, Placed, Step, TaskEvent
from tuneyard.training.request import TrainRequest, TrainResult
from tuneyard.tuning import Trial

WARM_UP = 0.25
"""Share of a trial's first steps that do not count: caches fill, kernels are chosen, and allocators grow."""
_LEAST_WARM_UP = 2
_STOP_GRACE_S = 30.0


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
    """The pace of a step; for a ranker with rows instead of tokens."""
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
    """Run a trial. A failure or a hang (longer than `limit_s`) is a result. Raises TuneyardError for a failure that is transient on these
    machines, which ends the search."""
    began = time.monotonic()

    def stop() -> bool:
        return should_stop() or time.monotonic() - began > limit_s

    def tell(state: Any, **more: Any) -> None:
        listener.emit(TaskEvent(task=listener.label, state=state, kind="train" if request.rank is None else "rank", **more))

    tell("started", plan=request.plan.to_dict(), settings=settings)
    result, failure, message = _attempted(number, request, setting, listener, stop)
    seconds = time.monotonic() - began
    if seconds > limit_s and not should_stop():
        failure, message = "Hang", f"not done after {limit_s:.0f} s"
    measured = listener.speed(request.task.steps or 0) if not failure else None
    if measured is None or result is None:
        tell("failed", failure=FailureKind.DEADLINE.value if failure == "Hang" else failure, message=message)
        why = message.splitlines()[0] if message else ""
        return Trial(number=number, point=dict(point), failure=failure or "Stopped", message=why, seconds=seconds)
    told = {name: getattr(result, name) for name in ("peak_memory_gb", "mfu", "world_size")}
    told |= {"tokens_per_s": measured.tokens_per_s, "details": {**_data_details(result.details), "bottleneck": {"stall": measured.stall}}}
    tell("succeeded", result=told)
    return Trial(number=number, point=dict(point), tokens_per_s=measured.tokens_per_s, spread=measured.spread, seconds=seconds)


def _attempted(
    number: int, request: TrainRequest, setting: TrainSetting, listener: Listener, should_stop: ShouldStop
) -> tuple[TrainResult | None, str, str]:
    """Start the ranks once, and delete their output. Returns the result, or the kind and the message of the failure."""
    alone = replace(setting, retries=Retries(max=0), stop_grace_s=lambda: _STOP_GRACE_S, source=f"trial-{number}-rank")
    try:
        return run_train(request, alone, listener, should_stop), "", ""
    except BadInput as error:
        return None, FailureKind.USER_ERROR.value, str(error)
    except TuneyardError as error:
        if error.kind in setting.machines.transient:
            raise
        return None, str(error.kind), hide(error.cause, setting.secrets)
    finally:
        open_store(request.output).delete_prefix("")
        shutil.rmtree(request.scratch, ignore_errors=True)


def _data_details(details: Mapping[str, Any]) -> dict[str, Any]:
    """Details of a trial about data workers, for history."""
    data = details.get("data") or {}
    return {"stream": details["stream"], "data": {"format": data.get("format", "")}} if "stream" in details else {}
