"""Progress of a job in plain lines, for logs and pipes: a line for each change; for steps and rows, a line every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tuneyard.api import JobSpec, TuneyardError
from tuneyard.cli.jobs.figures import progress_of
from tuneyard.cli.progress.sample_text import heading, highlighted
from tuneyard.cli.trial_lines import trial_line
from tuneyard.data.visible import visible
from tuneyard.tracking import Evaluated, Event, JobProgress, SampleShown, TaskProgress, Tried, job_after, job_before
from tuneyard.tracking.progress.words import (
    STOPPING,
    attempt_words,
    began_words,
    end_words,
    event_words,
    progress_line,
    start_words,
)

if TYPE_CHECKING:
    from typing import TextIO

    from tuneyard.cluster import HubJob

_EVERY_S = 10.0


class PlainLines:
    """Compares a job with its state before, and prints the changes. `now`: the clock of the job's own times, in seconds."""

    def __init__(self, job: JobProgress, stream: TextIO, *, every_s: float, now: Callable[[], float]) -> None:
        self.job = job
        self._stream = stream
        self._every_s = every_s
        self._now = now
        self._said: dict[str, tuple[float, str]] = {}
        """Time and text of the last line, per task, and for the job under its label."""

    def show(self, job: JobProgress) -> None:
        before, self.job = self.job, job
        if job.label:
            self._show_job(before)
        for name, task in job.tasks.items():
            last = before.tasks.get(name, TaskProgress(name=name))
            if (last.at_work, last.attempt) != (task.at_work, task.attempt):
                self._said.pop(name, None)
            for line in changes(last, task, self._now()):
                self.say(name, line)
            if task.at_work:
                self._show_progress(last, task)

    def say(self, task: str, text: str) -> None:
        """Print one or more lines after the name of a task. `task` empty: without a name."""
        width = max((len(name) for name in self.job.tasks), default=0)
        for line in text.splitlines():
            shown = visible(line)  # of a program, a file or another person: control characters have no effect
            print(f"{task:<{width}}  {shown}" if task else shown, file=self._stream, flush=True)

    def _show_job(self, before: JobProgress) -> None:
        job, now = self.job, time.monotonic()
        line = "  ".join(part for part in (job.label, job.state, job.message.replace("\n", " ")) if part)
        at, said = self._said.get(job.label, (0.0, ""))
        if line != said and (job.state != before.state or not said or now - at >= self._every_s):
            self._said[job.label] = now, line
            self.say("", line)
        if job.starts_s is not None and before.starts_s is None:
            self.say("", f"{job.label}  expected start: {start_words(job.starts_s, self._now())}")

    def _show_progress(self, last: TaskProgress, task: TaskProgress) -> None:
        line, now = progress_line(task), time.monotonic()
        at, said = self._said.get(task.name, (now - self._every_s, ""))
        told = task.stage is not None or task.count is not None
        if told and line != said and (_is_news(last, task) or now - at >= self._every_s):
            self._said[task.name] = now, line
            self.say(task.name, line)


class PlainProgress:
    """The lines of a job on this machine. It listens to the job's events."""

    def __init__(self, job: JobSpec, stream: TextIO, *, every_s: float = _EVERY_S) -> None:
        self._lines = PlainLines(job_before(job), stream, every_s=every_s, now=time.monotonic)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Tried):
            self._lines.say(event.task, trial_line(event))
        elif isinstance(event, SampleShown):
            text = highlighted(event.pieces, marks=True).plain
            self._lines.say(event.task, f"{heading(event, marks=True)}:\n{text}")
        elif not isinstance(event, Evaluated):  # lines of steps have the figure of an evaluation
            self._lines.say(event.task, event_words(event))
        before = self._lines.job
        after = job_after(before, event, time.monotonic())
        if isinstance(event, Tried):
            self._lines.job = after  # the line of a trial tells more than the count of trials
        else:
            self._lines.show(after)

    def stopping(self) -> None:
        self._lines.say("", STOPPING)


class PlainJob:
    """The lines of a job on a hub. It is called with the job after each change."""

    def __init__(self, stream: TextIO, *, every_s: float = _EVERY_S) -> None:
        self._lines = PlainLines(JobProgress(tasks={}), stream, every_s=every_s, now=time.time)
        self._away = False

    def __call__(self, job: HubJob) -> None:
        if self._away:
            self._away = False
            self._lines.say("", "the hub answers again")
        self._lines.show(progress_of(job))

    def away(self, error: TuneyardError) -> None:
        self._away = True
        self._lines.say("", f"{error.cause.replace(chr(10), ' ')}; waiting for it")


def changes(before: TaskProgress, after: TaskProgress, now_s: float) -> Iterator[str]:
    """Lines for the difference between two states of a task, without its steps and rows. Pure."""
    for ended in after.history[len(before.history) :]:
        yield attempt_words(ended)
    begins = after.at_work and (not before.at_work or before.attempt != after.attempt)
    if begins:
        yield began_words(after)
    if after.placement is not None:  # only on a hub: on this machine, events tell both
        if after.checkpoint_step > before.checkpoint_step and before.at_work:
            yield f"checkpoint of step {after.checkpoint_step} committed"
        if after.warning and after.warning != before.warning:
            yield f"warning: {after.warning}"
    ends = after.state != before.state and after.state not in ("waiting", "queued", "starting", "running")
    if ends and not (len(after.history) > len(before.history) and after.state == after.history[-1].state):
        yield end_words(after, now_s)


def _is_news(last: TaskProgress, task: TaskProgress) -> bool:
    """Whether a line is printed at once: for a new stage, the first step of an attempt (which shows the time of a step), and the last
    step."""
    if task.stage is not None:
        return last.stage is None or last.stage.name != task.stage.name
    first = last.count is None or last.attempt != task.attempt
    return first or (task.count is not None and task.count.done == task.count.of)
