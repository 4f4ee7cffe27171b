"""Progress of a job on the hub, on stderr: a live view on a terminal, plain lines elsewhere. Fed with the job whenever it changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from tuneyard.api import Attempt, Phase, TaskStatus, TuneyardError
from tuneyard.cli.job_figures import figures, percent, place, state
from tuneyard.cluster import HubJob

if TYPE_CHECKING:
    from typing import TextIO

_EVERY_S = 10.0
_AT_WORK = (Phase.STARTING, Phase.RUNNING)


class JobView(Protocol):
    def __call__(self, job: HubJob) -> None: ...

    def away(self, error: TuneyardError) -> None:
        """The hub does not answer; it is asked again until it does."""


@contextmanager
def open_job_view() -> Iterator[JobView]:
    """The view that fits stderr."""
    if sys.stderr.isatty():
        from tuneyard.cli.job_progress_live import LiveJob

        with LiveJob() as live:
            yield live
    else:
        yield PlainJob(sys.stderr)


class PlainJob:
    """One line per thing that happened; of things that happen all the time, one line in ten seconds."""

    def __init__(self, stream: TextIO, *, every_s: float = _EVERY_S) -> None:
        self._stream = stream
        self._every_s = every_s
        self._known: dict[str, str] = {}
        self._said_at: dict[str, float] = {}
        self._away = False

    def __call__(self, job: HubJob) -> None:
        if self._away:
            self._away = False
            self._say("the hub answers again")
        self._tell(job.label, state(job), job.status.message)
        found = {task.name: task for task in job.status.tasks}
        for outline in job.tasks:
            task = found.get(outline.name)
            if task is not None and task.phase is not Phase.PENDING:
                self._tell_task(job, task)

    def away(self, error: TuneyardError) -> None:
        self._away = True
        self._say(f"{error.cause}; waiting for it")

    def _tell_task(self, job: HubJob, task: TaskStatus) -> None:
        attempts = [attempt for attempt in job.status.attempts if attempt.task == task.name]
        for attempt in attempts:
            if attempt.failure:
                self._once(f"{task.name} {attempt.number}", f"{task.name}  attempt {attempt.number} ended: {_failure(attempt)}")
        current = attempts[-1] if attempts else None
        where = f"  attempt {current.number} on {place(current.placement)}" if current and current.placement else ""
        what = f"{task.phase}{where}" if task.phase in _AT_WORK else str(task.phase)
        doing = "  ".join(part for part in (percent(task.progress), *figures(task.progress)) if part) if task.phase in _AT_WORK else ""
        self._tell(task.name, what, doing or task.message)

    def _tell(self, subject: str, what: str, detail: str) -> None:
        """`what` whenever it changes; `detail` with it, and when it has changed and the last word was a while ago."""
        line = f"{subject}  {what}{f'  {detail}' if detail else ''}"
        key = f"{what}\n{detail}"
        known = self._known.get(subject, "")
        if known == key:
            return
        if known.partition("\n")[0] == what and time.monotonic() - self._said_at[subject] < self._every_s:
            return
        self._known[subject], self._said_at[subject] = key, time.monotonic()
        self._say(line)

    def _once(self, key: str, line: str) -> None:
        if key not in self._known:
            self._known[key] = line
            self._say(line)

    def _say(self, text: str) -> None:
        print(text.replace("\n", " "), file=self._stream, flush=True)


def _failure(attempt: Attempt) -> str:
    node = f" on {attempt.failed_node}" if attempt.failed_node else ""
    return f"{attempt.failure}{node}: {attempt.message}" if attempt.message else f"{attempt.failure}{node}"
