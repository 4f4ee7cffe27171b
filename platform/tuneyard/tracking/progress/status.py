"""The progress of a job as its hub reports it: the same records as those folded from events. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from tuneyard.api import Attempt, JobStatus, Phase, TaskStatus
from tuneyard.api import Progress as Reported
from tuneyard.tracking.progress.fold import Count, EndedAttempt, JobProgress, Noun, StageProgress, State, TaskProgress, finite
from tuneyard.tracking.progress.words import read_stage

_STATES: Mapping[Phase, State] = {
    Phase.PENDING: "waiting",
    Phase.QUEUED: "queued",
    Phase.STARTING: "starting",
    Phase.RUNNING: "running",
    Phase.SUCCEEDED: "succeeded",
    Phase.FAILED: "failed",
    Phase.PREEMPTED: "preempted",
    Phase.CANCELLED: "cancelled",
}
_NOUNS: Mapping[str, Noun] = {"score": "rows", "tune": "trial"}
"""By kind of task; steps of all others."""
_SAID: Mapping[str | None, Noun] = {"step": "step", "rows": "rows", "trial": "trial"}


def job_of_status(status: JobStatus, kinds: Mapping[str, str], *, label: str = "", state: str = "") -> JobProgress:
    """A job from the status of its JobSpec. `kinds`: kind of each task by name, in the order in which tasks run."""
    found = {task.name: task for task in status.tasks}
    tasks = {}
    for name, kind in kinds.items():
        attempts = [attempt for attempt in status.attempts if attempt.task == name]
        tasks[name] = task_of_status(found.get(name, TaskStatus(name=name)), kind, attempts)
    active = [attempt.task for attempt in status.attempts if attempt.ended_at is None]
    newest = [*(attempt.task for attempt in status.attempts), *active]
    return JobProgress(
        tasks=tasks,
        label=label,
        state=state or str(status.phase),
        message=status.message,
        starts_s=seconds_of(status.expected_start) if status.expected_start and not status.phase.final else None,
        newest=newest[-1] if newest else "",
    )


def task_of_status(task: TaskStatus, kind: str, attempts: list[Attempt]) -> TaskProgress:
    """A task from its status. `attempts`: its own, oldest first."""
    current = attempts[-1] if attempts else None
    at_work = task.phase in (Phase.STARTING, Phase.RUNNING)
    began = (current.placed_at or current.started_at) if current is not None else None
    stage, count = _doing(task.progress, kind)
    progress = task.progress
    if task.phase is Phase.STARTING:  # a count before the ranks have begun is of the attempt before
        count, progress = None, Reported()
    return TaskProgress(
        name=task.name,
        kind=kind,
        state=_STATES[task.phase],
        begun=task.phase is Phase.RUNNING,
        attempt=current.number if current is not None else 1,
        again=len(attempts) > 1,
        began_s=seconds_of(began) if began else None,
        ended_s=seconds_of(current.ended_at) if current is not None and current.ended_at else None,
        history=tuple(_ended(attempt) for attempt in attempts if attempt.failure),
        stage=stage,
        count=count,
        eta_s=finite(progress.eta_s),
        loss=finite(progress.loss),
        tokens_per_s=finite(progress.tokens_per_s),
        rows_per_s=finite(progress.rows_per_s),
        mfu=finite(progress.mfu),
        data_wait=finite(progress.data_wait),
        checkpoint_wait=finite(progress.checkpoint_wait),
        checkpoint_s=finite(progress.checkpoint_s),
        checkpoint_step=max((attempt.checkpoint_step for attempt in attempts), default=0),
        resumed_from=current.resumed_from if current is not None else None,
        warning=task.message if at_work else "",
        message="" if at_work else task.message,
        placement=current.placement if current is not None else None,
    )


def seconds_of(moment: str | datetime) -> float:
    """Seconds since 1970 of an RFC 3339 time."""
    found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _doing(progress: Reported, kind: str) -> tuple[StageProgress | None, Count | None]:
    """The stage and the count that `summary` and the numbers tell of."""
    counted = re.fullmatch(rf"(?:(step|rows|trial) )?{progress.step}/{progress.of}", progress.summary)
    noun = _SAID.get(counted[1] if counted else None) or _NOUNS.get(kind, "step")
    count = Count(noun, progress.step, progress.of) if progress.of or progress.step or counted else None
    return (read_stage(progress.summary) if progress.summary and counted is None else None), count


def _ended(attempt: Attempt) -> EndedAttempt:
    began, end = attempt.placed_at or attempt.started_at, attempt.ended_at
    return EndedAttempt(
        number=attempt.number,
        state=_STATES[attempt.phase] if attempt.phase.final or attempt.phase is Phase.PREEMPTED else "failed",
        failure=attempt.failure or "",
        message=attempt.message,
        node=attempt.failed_node,
        seconds=seconds_of(end) - seconds_of(began) if began and end else None,
    )
