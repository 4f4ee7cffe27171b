"""The live view of a job on a terminal, on this machine or on a hub. It redraws a few times a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from tuneyard.api import JobSpec, TuneyardError
from tuneyard.cli.jobs.figures import progress_of
from tuneyard.cli.progress.drawing import drawn
from tuneyard.cli.progress.sample_text import heading, highlighted
from tuneyard.cli.terminal import console as own_console
from tuneyard.cli.trial_lines import trial_line
from tuneyard.cluster import HubJob
from tuneyard.tracking import Event, JobProgress, SampleShown, Tried, Warned, job_after, job_before
from tuneyard.tracking.progress.words import STOPPING


class LiveView:
    """Draws `job`, and below it `note`. `now`: the clock of the job's own times, in seconds."""

    def __init__(self, job: JobProgress, console: Console | None, now: Callable[[], float]) -> None:
        self.job = job
        self.note = ""
        self.console = console or own_console(stderr=True)
        self._now = now
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(self, console=self.console, refresh_per_second=5)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from drawn(self.job, self._spinner, self._now())
        if self.note:
            yield Text(self.note, style="yellow")


class LiveProgress(LiveView):
    """A job on this machine. It listens to the job's events; warnings, trials and samples scroll by above."""

    def __init__(self, job: JobSpec, console: Console | None = None) -> None:
        super().__init__(job_before(job), console, time.monotonic)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.note = ""
        super().__exit__(kind, error, trace)

    def __call__(self, event: Event) -> None:
        self.job = job_after(self.job, event, time.monotonic())
        if isinstance(event, Warned):
            label = Text(f"{event.task}: " if event.task else "", style="yellow")
            self.console.print(Text("! ", style="yellow") + label + Text(event.message))
        elif isinstance(event, Tried):
            self.console.print(Text(f"{event.task}: {trial_line(event)}"))
        elif isinstance(event, SampleShown):
            marks = not self.console.is_terminal
            self.console.rule(Text(f"{event.task}: {heading(event, marks=marks)}"), style="dim")
            self.console.print(highlighted(event.pieces, marks=marks))
            self.console.rule(style="dim")

    def stopping(self) -> None:
        self.note = STOPPING


class LiveJob(LiveView):
    """A job on a hub. It is called with the job after each change."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(JobProgress(tasks={}), console, time.time)

    def __call__(self, job: HubJob) -> None:
        self.job, self.note = progress_of(job), ""

    def away(self, error: TuneyardError) -> None:
        self.note = f"{error.cause}; waiting for it"
