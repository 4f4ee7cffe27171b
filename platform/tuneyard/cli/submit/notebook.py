"""The live view of a submission in a notebook: one output of the cell, from the shipped files to the end of the last task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tuneyard.api import TuneyardError
from tuneyard.cli.output import size_text
from tuneyard.cli.progress.drawing import BAR_WIDTH
from tuneyard.cli.progress.live import LiveJob
from tuneyard.cli.progress.notebook import CellOutput, Show, display
from tuneyard.cli.progress.views import JobView
from tuneyard.cli.submit.ship_progress import announcement, conclusion
from tuneyard.cli.submit.words import left_words, outcome_words
from tuneyard.cluster import HubJob, Sent, Shipment, Submission
from tuneyard.cluster.uploads import OnProgress


class NotebookSubmit:
    """A `SubmitView`; its own renderable."""

    def __init__(self, *, show: Show = display, clock: Callable[[], float] = time.monotonic) -> None:
        self._cell = CellOutput(show=show, clock=clock)
        self._job = LiveJob(self._cell.console)
        self._lines: list[str] = []
        self._sending: tuple[str, int, int] | None = None
        self._end = ""
        self._states: tuple[object, ...] = ()

    def ships(self, shipment: Shipment, *, dry_run: bool) -> None:
        self._lines += announcement(shipment, dry_run=dry_run)
        self._cell.draw(self)

    @contextmanager
    def sending(self) -> Iterator[OnProgress]:
        try:
            yield self._sent_so_far
        finally:
            self._sending = None
            self._cell.draw(self)

    def _sent_so_far(self, name: str, done: int, of: int) -> None:
        self._sending = name, done, of
        self._cell.draw(self, now=False)

    def submitted(self, made: Submission, sent: Sent | None, hub: str) -> None:
        self._lines += [*conclusion(sent), outcome_words(made, hub)]
        self._cell.draw(self)

    @contextmanager
    def following(self) -> Iterator[JobView]:
        try:
            yield self
        finally:
            self._cell.draw(self)

    def __call__(self, job: HubJob) -> None:
        """Draw the present state of the job. A new phase is drawn at once."""
        self._job(job)
        states = (job.phase, *((task.name, task.phase) for task in job.status.tasks))
        self._cell.draw(self, now=states != self._states)
        self._states = states

    def away(self, error: TuneyardError) -> None:
        self._job.away(error)
        self._cell.draw(self)

    def left(self, job: HubJob) -> None:
        self._end = left_words(job)
        self._cell.draw(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            yield Text(line)
        if self._sending is not None:
            name, done, of = self._sending
            bar = Table.grid(padding=(0, 2))
            bar.add_row(name[:40], ProgressBar(total=of or 1, completed=done, width=BAR_WIDTH), f"{size_text(done)} of {size_text(of)}")
            yield bar
        yield self._job
        if self._end:
            yield Text(self._end, style="yellow")
