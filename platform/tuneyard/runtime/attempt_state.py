"""From the events of a task to the AttemptState that its hub sees. Pure: the same events make the same state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from tuneyard.api import FailureKind, TuneyardError
from tuneyard.api.attempt_report import AttemptState, Failure, StopReason
from tuneyard.api.status import Phase, Progress
from tuneyard.tracking import Checkpointed, Event, Placed, Preflighted, Scored, Stage, Step, TaskEvent, Tried, Warned

ModelT = TypeVar("ModelT", bound=BaseModel)

_LONGEST_MESSAGE = 2_000
_LONGEST_TAIL = 4_000
_WAIT_OVER_S = 60.0


def after(state: AttemptState, event: Event) -> AttemptState:
    """The state once `event` has happened."""
    if isinstance(event, Step):
        return _after_step(state, event)
    if isinstance(event, Stage):
        summary = f"{event.name} {event.done:,.0f}/{event.of:,.0f}" if event.of else event.name
        return _with(state, stage=summary, progress=_with(state.progress, summary=summary))
    if isinstance(event, Scored):
        progress = Progress(
            step=event.rows,
            of=event.of,
            eta_s=_number(event.eta_s),
            tokens_per_s=_number(event.output_tokens_per_s),
            summary=f"{event.rows}/{event.of}",
        )
        return _with(state, phase=Phase.RUNNING, stage="", progress=progress)
    if isinstance(event, Tried):
        best = max(state.progress.tokens_per_s or 0.0, event.measured or 0.0)
        progress = Progress(step=event.number, of=event.of, tokens_per_s=_number(best), summary=f"trial {event.number}/{event.of}")
        return _with(state, phase=Phase.RUNNING, stage="", progress=progress)
    if isinstance(event, Checkpointed):
        return _with(state, checkpoint_step=max(state.checkpoint_step, event.step))
    if isinstance(event, Placed):
        return _with(state, phase=Phase.RUNNING, ranks=list(event.ranks), world_size=len(event.ranks))
    if isinstance(event, Preflighted) and event.all_reduce_gb_per_s is not None:
        return _with(state, metrics={**state.metrics, "all_reduce_gb_per_s": event.all_reduce_gb_per_s})
    if isinstance(event, Warned):
        return _with(state, message=event.message[:_LONGEST_MESSAGE])
    return _after_task(state, event) if isinstance(event, TaskEvent) else state


def _after_step(state: AttemptState, event: Step) -> AttemptState:
    first = state.progress.step == 0 and state.resumed_from == 0
    resumed_from = event.step - 1 if first else state.resumed_from
    progress = Progress(
        step=event.step,
        of=event.of,
        eta_s=_number(event.eta_s),
        loss=_number(event.loss),
        tokens_per_s=_number(event.tokens_per_s) if event.rows_per_s is None else None,
        mfu=_number(event.mfu),
        data_wait=_data_wait(state.progress.data_wait, event),
        summary=f"{event.step}/{event.of}",
    )
    return _with(
        state,
        phase=Phase.RUNNING,
        stage="",
        progress=progress,
        resumed_from=resumed_from,
        checkpoint_step=max(state.checkpoint_step, resumed_from),
    )


def _data_wait(before: float | None, event: Step) -> float | None:
    """The share of a wait as a moving average over time: a step counts by its length, and what is a minute old counts a third."""
    weight = 1.0 if before is None else 1.0 - math.exp(-event.step_s / _WAIT_OVER_S)
    return _number(weight * event.data_share + (1 - weight) * (before or 0.0))


def _after_task(state: AttemptState, event: TaskEvent) -> AttemptState:
    if event.state == "started":
        # A process task has no ranks: it runs from here on.
        return _with(state, phase=Phase.RUNNING) if event.kind == "process" else state
    result = event.result or {}
    if event.state not in ("succeeded", "skipped", "stopped"):
        return state
    resumed_from = int(result.get("resumed_from") or 0) or state.resumed_from
    return _with(state, metrics={**state.metrics, **figures(result)}, artifacts=artifacts(result), resumed_from=resumed_from)


def figures(result: Mapping[str, Any]) -> dict[str, float | int]:
    """What of a task's result is a single number, and the metrics of a score task."""
    named = {**result, **(result.get("metrics") or {})}
    return {name: value for name, value in named.items() if _is_number(value)}


def artifacts(result: Mapping[str, Any]) -> list[str]:
    """URIs of what a task has made: weights and adapters, scored rows, files."""
    made = list((result.get("artifacts") or {}).values())
    return made or ([result["output"]] if result.get("output") else [])


def succeeded(state: AttemptState) -> AttemptState:
    """The last state of an attempt that did what it was asked."""
    done = _with(state.progress, eta_s=0.0) if state.progress.of else state.progress
    return _with(state, phase=Phase.SUCCEEDED, stage="", message="", progress=done)


def stopped(state: AttemptState, reason: StopReason) -> AttemptState:
    """The last state of an attempt that was asked to stop, and did."""
    kept = f"; its checkpoint of step {state.checkpoint_step} is kept" if state.checkpoint_step else ""
    message = f"stopped as asked ({reason}){kept}"
    if reason == "Deadline":
        failure = Failure(kind=FailureKind.DEADLINE, message=message, next_step="set a later deadline; the next job goes on from there")
        return _with(state, phase=Phase.FAILED, stage="", message=message, failure=failure)
    phase = Phase.CANCELLED if reason == "Cancelled" else Phase.PREEMPTED
    return _with(state, phase=phase, stage="", message=message)


def failed(state: AttemptState, error: TuneyardError) -> AttemptState:
    """The last state of an attempt that failed with `error`, whose texts hold no secret."""
    blame = error.blame
    # Where the last lines stand in the message as well, they belong into their own field.
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


def _number(value: float) -> float | None:
    """JSON, and so the API server, has neither NaN nor infinity; five digits say enough."""
    return float(f"{value:.5g}") if math.isfinite(value) else None
