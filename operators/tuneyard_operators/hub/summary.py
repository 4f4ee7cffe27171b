"""Sums up the phase, message, placement and progress of a job from its tasks and attempts. Pure."""

from __future__ import annotations

from tuneyard.api import JobStatus, Phase
from tuneyard.api.status import Progress
from tuneyard_operators.hub.attempts import is_active
from tuneyard_operators.hub.goals import Goal

_NOTHING_FURTHER = "nothing further of it starts"


def summarise(status: JobStatus, goal: Goal, ready: tuple[str, ...]) -> None:
    """Bring the summary of a status up to date. `ready`: tasks that wait for a placement."""
    for task in status.tasks:
        if not task.phase.final:
            task.phase = _phase_of(status, task.name)
    active = [attempt for attempt in status.attempts if is_active(attempt)]
    shown = active[-1] if active else (status.attempts[-1] if status.attempts else None)
    if shown is not None:
        waits = not active and not status.phase.final
        status.placement = None if waits else shown.placement
        status.progress = next((task.progress for task in status.tasks if task.name == shown.task), Progress())
    status.artifacts = [uri for task in status.tasks for uri in task.artifacts]
    if status.phase.final:
        return
    if active:
        running = any(attempt.phase is Phase.RUNNING for attempt in active)
        status.phase = Phase.RUNNING if running else Phase.STARTING
        status.message = "; ".join(f"{attempt.task}: {attempt.message}" for attempt in active if attempt.message)
        if goal.problem:
            status.message = f"{_NOTHING_FURTHER}: {goal.problem}" + (f"; {status.message}" if status.message else "")
        return
    status.phase = Phase.QUEUED if ready or status.attempts or goal.job.spec.suspend else Phase.PENDING
    status.message = _message(status, goal, ready)


def _phase_of(status: JobStatus, task: str) -> Phase:
    own = [attempt for attempt in status.attempts if attempt.task == task]
    phases = [attempt.phase for attempt in own if is_active(attempt)]
    if phases:
        return phases[-1]
    return Phase.QUEUED if own else Phase.PENDING


def _message(status: JobStatus, goal: Goal, ready: tuple[str, ...]) -> str:
    """Why a job has no active attempt. For tasks that wait for a placement, the reasons of the scheduler stay."""
    if goal.problem and not status.attempts:
        return f"waits: {goal.problem}"
    if goal.problem:
        return f"{_NOTHING_FURTHER}: {goal.problem}"
    if goal.missing:
        return goal.missing
    if goal.job.spec.suspend:
        return "suspended: tuneyard resume, or spec.suspend set to false, lets it go on"
    if ready:
        return status.message
    last = status.attempts[-1] if status.attempts else None
    asleep = [attempt for attempt in status.attempts if attempt.sleeps]
    if asleep:
        told = "; ".join(f"{attempt.task}: {attempt.message}" for attempt in asleep)
        way = "the next request or " if all(attempt.door == "open" for attempt in asleep) else ""
        why = "".join(f" ({attempt.next_step})" for attempt in asleep if attempt.next_step)
        return f"asleep: {told}; {way}tuneyard resume {goal.job.metadata.name} starts it again{why}"
    return f"{last.task}: {last.failure}: {last.message}; trying again" if last and last.failure else ""
