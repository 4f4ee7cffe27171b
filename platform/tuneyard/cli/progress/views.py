"""Progress of a job on stderr: a live view on a terminal or in a notebook, plain lines elsewhere. stdout stays free for results.

The events of a job on this machine and the status of a job on a hub become one record (`tuneyard.tracking.JobProgress`). One drawing and
one set of lines show this record.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from tuneyard.api import JobSpec, TuneyardError
from tuneyard.cli.progress.plain import PlainJob, PlainProgress
from tuneyard.tracking import Event

if TYPE_CHECKING:
    from tuneyard.cluster import HubJob


class Progress(Protocol):
    """A listener of a job's events, which also says that a stop was asked for."""

    def __call__(self, event: Event) -> None: ...

    def stopping(self) -> None: ...


class JobView(Protocol):
    """Shows a job of the hub, each time it has changed."""

    def __call__(self, job: HubJob) -> None: ...

    def away(self, error: TuneyardError) -> None:
        """Show that the hub does not answer. The caller asks again until it does."""


@contextmanager
def open_progress(job: JobSpec) -> Iterator[Progress]:
    """The view of a job on this machine: for a notebook in a notebook, else for stderr."""
    if in_notebook():
        from tuneyard.cli.progress.notebook import NotebookProgress

        with NotebookProgress(job) as drawn:
            yield drawn
    elif sys.stderr.isatty():
        from tuneyard.cli.progress.live import LiveProgress

        with LiveProgress(job) as live:
            yield live
    else:
        yield PlainProgress(job, sys.stderr)


@contextmanager
def open_job_view() -> Iterator[JobView]:
    """The view of a job on a hub, for stderr."""
    if sys.stderr.isatty():
        from tuneyard.cli.progress.live import LiveJob

        with LiveJob() as live:
            yield live
    else:
        yield PlainJob(sys.stderr)


def in_notebook() -> bool:
    """True in a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def watched() -> bool:
    """True in a notebook and on a terminal, where a person is likely to look."""
    return in_notebook() or sys.stderr.isatty()


class Silent:
    """Shows nothing."""

    def __call__(self, event: Event) -> None:
        pass

    def stopping(self) -> None:
        pass
