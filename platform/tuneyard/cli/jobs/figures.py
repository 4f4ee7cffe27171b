"""Short forms of facts about a job on the hub, for its table and its page."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from tuneyard.api import Attempt, Phase
from tuneyard.tracking import JobProgress, TaskProgress, job_of_status
from tuneyard.tracking.progress.status import seconds_of
from tuneyard.tracking.progress.words import clock, doing

if TYPE_CHECKING:
    from tuneyard.cluster import HubJob

_EIGHTHS = " ▏▎▍▌▋▊▉"


def progress_of(job: HubJob) -> JobProgress:
    """The job as its hub reports it."""
    return job_of_status(job.status, {task.name: task.kind for task in job.tasks}, label=job.label, state=job.state)


def done_words(task: TaskProgress) -> str:
    """`step 40/120 33%`, or the stage of work outside the steps, or empty."""
    if task.stage is None and task.count is None:
        return ""
    return doing(task) if task.stage is not None or task.fraction is None else f"{doing(task)} {task.fraction:.0%}"


def bar(done: float, width: int = 10) -> str:
    """`███▍······`, in eighths of a letter."""
    eighths = round(done * width * 8)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return text + "·" * (width - len(text))


def seconds_since(moment: str | datetime, now: datetime) -> float:
    """Seconds from an RFC 3339 time until `now`."""
    return now.timestamp() - seconds_of(moment)


def took(attempt: Attempt, now: datetime) -> str | None:
    """Length of an attempt, from its placement; None before that."""
    began = attempt.placed_at or attempt.started_at
    if not began:
        return None
    end_s = seconds_of(attempt.ended_at) if attempt.ended_at else now.timestamp()
    return clock(end_s - seconds_of(began))


def attempt_state(attempt: Attempt) -> str:
    """`Failed (NodeLost)`, `Running`, `Running, stopping (Preempted)`."""
    if attempt.failure and attempt.phase is Phase.FAILED:
        return f"Failed ({attempt.failure})"
    stopping = f", stopping ({attempt.stopping})" if attempt.stopping and not attempt.ended_at else ""
    return f"{attempt.phase}{stopping}"
