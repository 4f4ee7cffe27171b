"""The views of `tuneyard.submit` from Python: shipped files, the answer of the hub, and the progress of each task."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from tuneyard.api import TuneyardError
from tuneyard.cli.progress.views import JobView, in_notebook, open_job_view
from tuneyard.cli.submit.ship_progress import announcement, conclusion, open_ship_progress
from tuneyard.cli.submit.words import left_words, outcome_words
from tuneyard.cluster import HubJob, Sent, Shipment, Submission
from tuneyard.cluster.uploads import OnProgress


class SubmitView(Protocol):
    """Its methods are called in this order."""

    def ships(self, shipment: Shipment, *, dry_run: bool) -> None: ...

    def sending(self) -> AbstractContextManager[OnProgress]: ...

    def submitted(self, made: Submission, sent: Sent | None, hub: str) -> None: ...

    def following(self) -> AbstractContextManager[JobView]: ...

    def left(self, job: HubJob) -> None:
        """The wait was interrupted. The job continues."""


def open_submit_view(*, shown: bool) -> SubmitView:
    """The view: one output of the cell in a notebook, elsewhere lines and bars on stderr."""
    if not shown:
        return Unseen()
    if in_notebook():
        from tuneyard.cli.submit.notebook import NotebookSubmit  # late: notebooks alone have IPython

        return NotebookSubmit()
    return OnStderr()


class OnStderr:
    """Lines; bars on a terminal."""

    def ships(self, shipment: Shipment, *, dry_run: bool) -> None:
        _say(*announcement(shipment, dry_run=dry_run))

    def sending(self) -> AbstractContextManager[OnProgress]:
        return open_ship_progress()

    def submitted(self, made: Submission, sent: Sent | None, hub: str) -> None:
        _say(*conclusion(sent), outcome_words(made, hub))

    def following(self) -> AbstractContextManager[JobView]:
        return open_job_view()

    def left(self, job: HubJob) -> None:
        _say(left_words(job))


class Unseen:
    """Shows nothing: for programs without a terminal."""

    def ships(self, shipment: Shipment, *, dry_run: bool) -> None:
        pass

    @contextmanager
    def sending(self) -> Iterator[OnProgress]:
        yield lambda _name, _done, _of: None

    def submitted(self, made: Submission, sent: Sent | None, hub: str) -> None:
        pass

    def following(self) -> AbstractContextManager[JobView]:
        return nullcontext(_Nothing())

    def left(self, job: HubJob) -> None:
        pass


class _Nothing:
    def __call__(self, job: HubJob) -> None:
        pass

    def away(self, error: TuneyardError) -> None:
        pass


def _say(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr)
