"""Progress of a running job on stderr: a live view on a terminal, plain lines elsewhere. stdout stays free for results."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from tuneyard.api import FailureKind, JobSpec
from tuneyard.cli.progress_state import JobProgress, TaskProgress, clock
from tuneyard.cli.sample_text import heading, highlighted
from tuneyard.cli.trial_lines import trial_line
from tuneyard.tracking import Checkpointed, Event, Placed, Preflighted, SampleShown, Stage, Step, TaskEvent, Tried, Warned

if TYPE_CHECKING:
    from typing import TextIO

STOPPING = "stopping at the next step, keeping the checkpoint; Ctrl-C again to end at once"
_EVERY_S = 10.0
_FAILURES = {FailureKind.DEADLINE.value: "its time was over"}
"""Kinds of failure that people read in other words."""


class Progress(Protocol):
    """A listener of a job's events, which also says that a stop was asked for."""

    def __call__(self, event: Event) -> None: ...

    def stopping(self) -> None: ...


@contextmanager
def open_progress(job: JobSpec) -> Iterator[Progress]:
    """The view that fits: in a notebook one of its own, else the one that fits stderr."""
    if in_notebook():
        from tuneyard.cli.progress_notebook import NotebookProgress

        with NotebookProgress(job) as drawn:
            yield drawn
    elif sys.stderr.isatty():
        from tuneyard.cli.progress_live import LiveProgress

        with LiveProgress(job) as live:
            yield live
    else:
        yield PlainProgress(job, sys.stderr)


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def watched() -> bool:
    """Whether someone is likely to look: at a notebook, or at a terminal."""
    return in_notebook() or sys.stderr.isatty()


class Silent:
    """No view."""

    def __call__(self, event: Event) -> None:
        pass

    def stopping(self) -> None:
        pass


class PlainProgress:
    """One line per thing that happened; of things that happen all the time, one line in ten seconds."""

    def __init__(self, job: JobSpec, stream: TextIO, *, every_s: float = _EVERY_S) -> None:
        self._job = JobProgress(job)
        self._stream = stream
        self._every_s = every_s
        self._said: dict[str, float] = {}
        self._stepped: set[str] = set()
        self._width = max(len(name) for name in self._job.tasks)

    def __call__(self, event: Event) -> None:
        self._job.take(event)
        if isinstance(event, Warned):
            self._say(event.task, f"warning: {event.message}")
        elif isinstance(event, Checkpointed):
            self._say(event.task, f"checkpoint of step {event.step} committed in {event.seconds:.1f} s ({event.bytes / 1e6:,.1f} MB)")
        elif isinstance(event, Tried):
            self._say(event.task, trial_line(event))
        elif isinstance(event, SampleShown):
            self._say(event.task, f"{heading(event, marks=True)}:\n{highlighted(event.pieces, marks=True).plain}")
        elif isinstance(event, Placed):
            self._say_places(event)
        elif isinstance(event, Preflighted):
            if event.all_reduce_gb_per_s is not None:
                self._say(event.task, f"all-reduce between the ranks: {event.all_reduce_gb_per_s:.2f} GB/s")
        elif event.task in self._job.tasks:
            self._say_task(event, self._job.tasks[event.task])

    def stopping(self) -> None:
        self._say("", STOPPING)

    def _say_places(self, event: Placed) -> None:
        """On a cluster; on one machine there is nothing to tell."""
        if any(place.node for place in event.ranks):
            pods = dict.fromkeys(f"{place.pod} ({place.node})" for place in event.ranks)
            self._say(event.task, f"{len(event.ranks)} running, on {', '.join(pods)}")

    def _say_task(self, event: Event, task: TaskProgress) -> None:
        if isinstance(event, TaskEvent):
            self._said.pop(task.name, None)
            self._stepped.discard(task.name)
            self._say(task.name, _state_line(event, task))
        elif self._is_due(event, task):
            self._said[task.name] = time.monotonic()
            self._say(task.name, "  ".join([task.doing(), *([] if task.stage else task.figures())]))

    def _is_due(self, event: Event, task: TaskProgress) -> bool:
        new_stage = isinstance(event, Stage) and event.done == 0
        if isinstance(event, Step) and task.name not in self._stepped:
            self._stepped.add(task.name)
            return True  # of an attempt: it shows that steps come, and how long they take
        last = task.step is not None and task.stage is None and task.step.step == task.step.of
        return new_stage or last or time.monotonic() - self._said.get(task.name, -self._every_s) >= self._every_s

    def _say(self, task: str, text: str) -> None:
        label = f"{task:<{self._width}}  " if task else ""
        for line in text.splitlines():
            print(f"{label}{line}", file=self._stream, flush=True)


def _state_line(event: TaskEvent, task: TaskProgress) -> str:
    if event.state == "started":
        return (
            ("started" if task.name == task.kind else f"started ({task.kind})")
            if event.attempt == 1
            else f"attempt {event.attempt} started"
        )
    seconds = task.seconds(time.monotonic())
    took = f" after {clock(seconds)}" if seconds is not None else ""
    if event.state == "failed":
        return f"attempt {event.attempt} failed{took}: {_FAILURES.get(event.failure, event.failure)}"
    if event.state == "skipped":
        return "done before, skipped"
    return f"{event.state}{took}"
