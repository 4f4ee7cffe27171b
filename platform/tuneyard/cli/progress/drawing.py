"""A job as it is drawn on a terminal and in a notebook: one line per task, and below a task at work a bar with its figures."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tuneyard.tracking import JobProgress, TaskProgress
from tuneyard.tracking.progress.words import clock, doing, figures, first_line, place_words, start_words

BAR_WIDTH = 28
_MARKS = {
    "waiting": ("·", "dim"),
    "queued": ("·", "yellow"),
    "succeeded": ("✓", "green"),
    "skipped": ("↷", "dim"),
    "failed": ("✗", "red"),
    "stopped": ("■", "yellow"),
    "preempted": ("↷", "yellow"),
    "cancelled": ("■", "yellow"),
}


def drawn(job: JobProgress, spinner: Spinner, now_s: float) -> Iterator[RenderableType]:
    """The lines of a job, by the clock of its own times."""
    if job.label:
        yield _head(job, now_s)
    width = max((len(name) for name in job.tasks), default=0)
    for task in job.tasks.values():
        yield _task(task, width, spinner, now_s)


def _head(job: JobProgress, now_s: float) -> Text:
    """A job of a hub: its name and state, why it waits, and when it is predicted to start."""
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append(f"{job.label}  ", "bold").append(job.state).append(f"  {first_line(job.message)}", "dim")
    if job.starts_s is not None:
        head.append(f"  expected start: {start_words(job.starts_s, now_s)}", "dim")
    return head


def _task(task: TaskProgress, width: int, spinner: Spinner, now_s: float) -> RenderableType:
    line = Table.grid(padding=(0, 1))
    for column_width in (1, width):
        line.add_column(width=column_width, no_wrap=True)
    line.add_column(min_width=8, no_wrap=True)
    line.add_column(no_wrap=True, overflow="ellipsis")
    seconds = None if task.state in ("waiting", "queued") else task.seconds(now_s)
    style = "bold" if task.at_work else "dim" if task.state == "waiting" else ""
    line.add_row(
        spinner if task.at_work else Text(*_MARKS[task.state]),
        Text(task.name, style),
        Text(clock(seconds) if seconds is not None else "", "dim", justify="right"),
        _state(task),
    )
    return Group(line, _bar(task, width)) if task.at_work else line


def _state(task: TaskProgress) -> Text:
    """The rest of a task's first line: its present work, or its end."""
    again = f"attempt {task.attempt}  " if task.again else ""
    message = first_line(task.message)
    if task.state == "waiting":
        return Text(message or task.kind, "dim")
    if task.state == "queued":
        return Text(f"{again}queued  {message}".rstrip(), "yellow")
    if task.at_work:
        where = f"  {place_words(task.placement)}" if task.placement is not None else ""
        shown = Text(f"{again}{doing(task)}{where}", "cyan")
        # On this machine warnings scroll by above.
        return shown.append(f"  ! {first_line(task.warning)}", "yellow") if task.placement is not None and task.warning else shown
    shown_figures = "  ".join(figures(task))
    if task.state == "succeeded":
        return Text(f"{again}{shown_figures or 'done'}")
    where = f" at {doing(task)}" if task.began_s is not None else ""
    return Text("  ".join(part for part in (f"{again}{task.state}{where}", message, shown_figures) if part))


def _bar(task: TaskProgress, width: int) -> Table:
    line = Table.grid(padding=(0, 2))
    line.add_column(width=width + 2)
    line.add_column(width=BAR_WIDTH)
    line.add_column(no_wrap=True, overflow="ellipsis")
    fraction = task.fraction
    bar = ProgressBar(total=1.0, completed=fraction or 0.0, pulse=fraction is None, width=BAR_WIDTH)
    line.add_row("", bar, Text("  ".join(figures(task))))
    return line
