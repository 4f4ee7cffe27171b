"""The progress of a simulation on stderr: a bar on a terminal, elsewhere a line every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tuneyard.federation.simulation import Progress

_EVERY_S = 10.0


@contextmanager
def open_progress(policy: str, jobs: int) -> Iterator[Progress]:
    """A listener for one simulation of `jobs` jobs."""
    if not sys.stderr.isatty():
        yield _plain(policy, jobs)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[day]}"), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(policy, total=jobs, day="")
        yield lambda ended, now: bars.update(task, completed=ended, day=f"day {now / 86400:.0f}")


def _plain(policy: str, jobs: int) -> Progress:
    said_at = time.monotonic()

    def say(ended: int, now: float) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= _EVERY_S:
            said_at = time.monotonic()
            print(f"{policy}: day {now / 86400:.0f}, {ended:,} of {jobs:,} jobs have ended", file=sys.stderr, flush=True)

    return say
