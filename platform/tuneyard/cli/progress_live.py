"""The live view of a running job on a terminal: one line per task, and the running one with its figures."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tuneyard.api import JobSpec
from tuneyard.cli.progress import STOPPING
from tuneyard.cli.progress_state import JobProgress, TaskProgress, clock
from tuneyard.cli.sample_text import heading, highlighted
from tuneyard.cli.trial_lines import trial_line
from tuneyard.tracking import Event, SampleShown, Tried, Warned

_MARKS = {"waiting": ("·", "dim"), "succeeded": ("✓", "green"), "failed": ("✗", "red"), "stopped": ("■", "yellow"), "skipped": ("↷", "dim")}
_BAR_WIDTH = 28


class LiveProgress:
    """Redraws a few times a second; warnings scroll by above."""

    def __init__(self, job: JobSpec, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._job = JobProgress(job)
        self._spinner = Spinner("dots", style="cyan")
        self._stopping = False
        self._live = Live(self, console=self._console, refresh_per_second=5)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopping = False
        self._live.stop()

    def __call__(self, event: Event) -> None:
        self._job.take(event)
        if isinstance(event, Warned):
            label = Text(f"{event.task}: " if event.task else "", style="yellow")
            self._console.print(Text("! ", style="yellow") + label + Text(event.message))
        elif isinstance(event, Tried):
            self._console.print(Text(f"{event.task}: {trial_line(event)}"))
        elif isinstance(event, SampleShown):
            marks = not self._console.is_terminal
            self._console.rule(Text(f"{event.task}: {heading(event, marks=marks)}"), style="dim")
            self._console.print(highlighted(event.pieces, marks=marks))
            self._console.rule(style="dim")

    def stopping(self) -> None:
        self._stopping = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(len(name) for name in self._job.tasks)
        for task in self._job.tasks.values():
            yield self._task(task, width)
        if self._stopping:
            yield Text(STOPPING, style="yellow")

    def _task(self, task: TaskProgress, width: int) -> Table | Group:
        head = Table.grid(padding=(0, 1))
        for column_width in (1, width, 7):
            head.add_column(width=column_width, no_wrap=True)
        head.add_column(no_wrap=True, overflow="ellipsis")
        mark = self._spinner if task.state == "running" else Text(*_MARKS[task.state])
        name = Text(task.name, style="bold" if task.state == "running" else "dim" if task.state == "waiting" else "")
        seconds = task.seconds(time.monotonic())
        head.add_row(mark, name, Text(clock(seconds) if seconds is not None else "", style="dim", justify="right"), self._end(task))
        if task.state != "running":
            return head
        return Group(head, _now(task, width))

    def _end(self, task: TaskProgress) -> Text:
        if task.state == "waiting":
            return Text(task.kind, style="dim")
        again = f"attempt {task.attempt}  " if task.attempt > 1 else ""
        if task.state == "running":
            return Text(again + task.doing(), style="cyan")
        figures = "  ".join(task.figures())
        if task.state == "succeeded":
            return Text(again + (figures or "done"))
        where = f" at {task.doing()}" if task.began is not None else ""
        return Text(f"{again}{task.state}{where}  {figures}".rstrip())


def _now(task: TaskProgress, width: int) -> Table:
    """The second line of a running task: bar and figures."""
    line = Table.grid(padding=(0, 2))
    line.add_column(width=width + 2)
    line.add_column(width=_BAR_WIDTH)
    line.add_column(no_wrap=True, overflow="ellipsis")
    fraction = task.fraction
    bar = ProgressBar(total=1.0, completed=fraction or 0.0, pulse=fraction is None, width=_BAR_WIDTH)
    line.add_row("", bar, Text("  ".join(task.figures())))
    return line
