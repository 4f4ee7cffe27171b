"""The live view of a job on the hub: one line per task, and for those at work where they run and how far they are."""

from __future__ import annotations

from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tuneyard.api import Phase, TaskStatus, TuneyardError
from tuneyard.cli.job_figures import figures, fraction, percent, place, state, took
from tuneyard.cli.terminal import console as own_console
from tuneyard.cluster import HubJob, TaskOutline

_MARKS = {
    Phase.PENDING: ("·", "dim"),
    Phase.QUEUED: ("·", "yellow"),
    Phase.SUCCEEDED: ("✓", "green"),
    Phase.FAILED: ("✗", "red"),
    Phase.PREEMPTED: ("↷", "yellow"),
    Phase.CANCELLED: ("■", "yellow"),
}
_BAR_WIDTH = 28
_NEWLINE = "\n"


class LiveJob:
    """Redraws a few times a second."""

    def __init__(self, console: Console | None = None) -> None:
        self._job: HubJob | None = None
        self._error = ""
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(self, console=console or own_console(stderr=True), refresh_per_second=5)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def __call__(self, job: HubJob) -> None:
        self._job, self._error = job, ""

    def away(self, error: TuneyardError) -> None:
        self._error = error.cause

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        job = self._job
        if job is not None:
            head = Text(no_wrap=True, overflow="ellipsis")
            head.append(f"{job.label}  ", "bold").append(state(job)).append(f"  {job.status.message.partition(_NEWLINE)[0]}", "dim")
            yield head
            found = {task.name: task for task in job.status.tasks}
            width = max((len(outline.name) for outline in job.tasks), default=0)
            for outline in job.tasks:
                yield self._task(job, outline, found.get(outline.name, TaskStatus(name=outline.name)), width)
        if self._error:
            yield Text(f"{self._error}; waiting for it", style="yellow")

    def _task(self, job: HubJob, outline: TaskOutline, task: TaskStatus, width: int) -> Table | Group:
        head = Table.grid(padding=(0, 1))
        for column_width in (1, width, 8):
            head.add_column(width=column_width, no_wrap=True)
        head.add_column(no_wrap=True, overflow="ellipsis")
        attempts = [attempt for attempt in job.status.attempts if attempt.task == task.name]
        current = attempts[-1] if attempts else None
        at_work = task.phase in (Phase.STARTING, Phase.RUNNING)
        mark = self._spinner if at_work else Text(*_MARKS[task.phase])
        seconds = (took(current, datetime.now(UTC)) or "") if current else ""
        again = f"attempt {current.number}  " if current and len(attempts) > 1 else ""
        where = f"{place(current.placement)}  " if current and current.placement and at_work else ""
        rest = task.message.partition(_NEWLINE)[0] or (outline.kind if task.phase is Phase.PENDING else "")
        style = "cyan" if at_work else "dim" if task.phase is Phase.PENDING else ""
        phase = f"{task.phase}  " if task.phase is not Phase.PENDING else ""
        head.add_row(
            mark, Text(task.name, style="bold" if at_work else ""), Text(seconds, style="dim"), Text(f"{phase}{again}{where}{rest}", style)
        )
        return Group(head, _now(task, width)) if at_work else head


def _now(task: TaskStatus, width: int) -> Table:
    """The second line of a task at work: bar and figures."""
    line = Table.grid(padding=(0, 2))
    line.add_column(width=width + 2)
    line.add_column(width=_BAR_WIDTH)
    line.add_column(no_wrap=True, overflow="ellipsis")
    done = fraction(task.progress)
    progress = ProgressBar(total=1.0, completed=done or 0.0, pulse=done is None, width=_BAR_WIDTH)
    line.add_row("", progress, Text("  ".join([percent(task.progress), *figures(task.progress)])))
    return line
