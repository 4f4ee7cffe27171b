"""Turns the progress of a task into the AttemptState of the report. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from tuneyard.api import FailureKind, TuneyardError
from tuneyard.api.attempt_report import AttemptState, Failure, StopReason
from tuneyard.api.status import AttemptSummary, Phase, Progress, StageTime, StepLoss
from tuneyard.schedules import NOT_COMPARED
from tuneyard.tracking import Count, TaskProgress
from tuneyard.tracking.machines import over_machines, used
from tuneyard.tracking.progress import words as progress_words
from tuneyard.tracking.progress.fold import finite
from tuneyard.tracking.progress.summary import StepSummary

ModelT = TypeVar("ModelT", bound=BaseModel)

_LONGEST_MESSAGE = 2_000
_LONGEST_TAIL = 4_000
_MOST_TRIALS = 64
_TRIAL = ("number", "point", "ratio", "predicted", "tokens_per_s", "failure")


def state_of(task: TaskProgress, stages: Sequence[StageTime] = ()) -> AttemptState:
    """The state of an attempt that runs, or has not committed its result yet: its phase is never final."""
    result = task.result if task.state in ("succeeded", "skipped", "stopped") else None
    measured = {"all_reduce_gb_per_s": task.all_reduce_gb_per_s} if task.all_reduce_gb_per_s is not None else {}
    # Copied without validation: a text that is too long must not end a task. It is cut before it is sent.
    return _with(
        AttemptState(),
        phase=Phase.RUNNING if task.begun else Phase.STARTING,
        message=task.warning[:_LONGEST_MESSAGE],
        stages=list(stages),
        stage=progress_words.stage_words(task.stage) if task.stage is not None else "",
        progress=_progress(task),
        ranks=list(task.ranks),
        world_size=len(task.ranks),
        checkpoint_step=task.checkpoint_step,
        resumed_from=task.resumed_from or 0,
        metrics={
            **measured,
            **figures(result or {}),
            **search(result or {"trials": list(task.trials)}),
            **not_compared(result or {}),
        },
        artifacts=artifacts(result or {}),
        charged=task.charged,
        settings=dict(task.settings or {}),
        plan=dict(task.plan or {}),
        summary=_summary(task.summary) if task.summary is not None else None,
    )


def _summary(told: StepSummary) -> AttemptSummary:
    losses = [_with(StepLoss(step=0, loss=0.0), step=step, loss=kept) for step, loss in told.curve if (kept := finite(loss)) is not None]
    rates = {name: finite(getattr(told, name)) for name in ("step_s", "tokens_per_s", "mfu", "memory_gb")}
    return _with(AttemptSummary(), steps=told.steps, losses=losses, **rates)


def _progress(task: TaskProgress) -> Progress:
    count = task.count or Count("step", 0, 0)
    use = over_machines(task.machines.values())
    return _with(
        Progress(),
        step=count.done,
        of=count.of,
        eta_s=task.eta_s,
        loss=task.loss,
        tokens_per_s=task.tokens_per_s,
        rows_per_s=task.rows_per_s,
        mfu=task.mfu,
        data_wait=task.data_wait,
        checkpoint_wait=task.checkpoint_wait,
        checkpoint_s=task.checkpoint_s,
        gpu_utilization=finite(use.get("gpu_utilization")),
        cpu_share=finite(use.get("cpu_share")),
        network_gb_per_s=finite(use.get("network_sent_gb_per_s")),
        host_memory_gb=finite(use.get("host_memory_gb")),
        planned_mfu=finite(((task.plan or {}).get("speed") or {}).get("mfu")),
        summary=progress_words.doing(task) if task.stage is not None or task.count is not None else "",
    )


def figures(result: Mapping[str, Any]) -> dict[str, float | int]:
    """The numbers in a task's result, the peak of its ranks' memory, what its machines did, and the metrics of a score task with the bounds
    of their 95 % intervals: NAME.low and NAME.high. NAME.change, with bounds and `.rows`, is the change since the last good run over the
    same rows.
    """
    bounds = {
        f"{name}.{side}": bound
        for name, interval in (result.get("intervals") or {}).items()
        for side, bound in zip(("low", "high"), interval or (), strict=False)
    }
    changes = {
        f"{name}.change{'' if part == 'change' else f'.{part}'}": value
        for name, change in (result.get("changes") or {}).items()
        for part, value in change.items()
    }
    named = {**result, **used(result), **(result.get("metrics") or {}), **bounds, **changes}
    peaks = [peak for peak in _listed(named.get("peak_memory_gb")) if _is_number(peak)]
    found = {name: value for name, value in named.items() if _is_number(value)}
    return {**found, "peak_memory_gb": max(peaks)} if peaks else found


def not_compared(result: Mapping[str, Any]) -> dict[str, str]:
    """Why a score task of a Schedule has not compared its rows with those of the last good run. Empty for others."""
    why = result.get(NOT_COMPARED)
    return {NOT_COMPARED: why} if isinstance(why, str) else {}


def search(result: Mapping[str, Any]) -> dict[str, Any]:
    """The trials and, at its end, the winner of a search, for the pages of the hub, and its runs as rows of history. Empty for other
    tasks, and before the first trial."""
    trials = _listed(result.get("trials"))[:_MOST_TRIALS]
    short = [{name: trial[name] for name in _TRIAL if trial.get(name) is not None} for trial in trials if isinstance(trial, Mapping)]
    return {"trials": short, "best": dict(result.get("best") or {}), **_learned(result)} if short else {}


def _learned(result: Mapping[str, Any]) -> dict[str, Any]:
    """The runs of a search as rows of history, the latest of them."""
    given = result.get("learned")
    return {"learned": {**given, "trials": _listed(given.get("trials"))[-_MOST_TRIALS:]}} if isinstance(given, Mapping) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def artifacts(result: Mapping[str, Any]) -> list[str]:
    """URIs of a task's products: weights and adapters, scored rows, files."""
    made = list((result.get("artifacts") or {}).values())
    return made or ([result["output"]] if result.get("output") else [])


def succeeded(state: AttemptState) -> AttemptState:
    """The last state of an attempt that succeeded."""
    done = _with(state.progress, eta_s=0.0) if state.progress.of else state.progress
    return _with(state, phase=Phase.SUCCEEDED, stage="", message="", progress=done)


def stopped(state: AttemptState, reason: StopReason) -> AttemptState:
    """The last state of an attempt that stopped as asked."""
    kept = f"; its checkpoint of step {state.checkpoint_step} is kept" if state.checkpoint_step else ""
    message = f"stopped as asked ({reason}){kept}"
    if reason == "Deadline":
        failure = Failure(kind=FailureKind.DEADLINE, message=message, next_step="set a later deadline; the next job resumes from there")
        return _with(state, phase=Phase.FAILED, stage="", message=message, failure=failure)
    phase = Phase.CANCELLED if reason == "Cancelled" else Phase.PREEMPTED
    return _with(state, phase=phase, stage="", message=message)


def asleep(state: AttemptState, why: str) -> AttemptState:
    """The last state of an attempt whose server has ended for lack of requests."""
    return _with(state, phase=Phase.PREEMPTED, idle=True, stage="", message=why)


def failed(state: AttemptState, error: TuneyardError) -> AttemptState:
    """The last state of an attempt that failed with `error`, whose texts hold no secret."""
    blame = error.blame
    # The last lines have a field of their own: remove them from the message.
    message = error.cause.removesuffix(blame.log_tail).rstrip(":;\n ") if blame.log_tail else error.cause
    failure = Failure(
        kind=error.kind,
        message=message[:_LONGEST_MESSAGE],
        next_step=error.next_step[:_LONGEST_MESSAGE],
        node=blame.node,
        rank=blame.rank,
        log_tail=blame.log_tail[-_LONGEST_TAIL:],
    )
    return _with(state, phase=Phase.FAILED, stage="", message=failure.message, failure=failure)


def _with(model: ModelT, **changes: Any) -> ModelT:
    return model.model_copy(update=changes)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
