"""The live view of a running job in a notebook: one output of the cell, which is redrawn while the job runs.

The drawing is the terminal's, sent as HTML through IPython's display protocol, which Jupyter, VS Code and Colab support without
widgets. Frequent events are drawn once a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from rich.console import RenderableType

from tuneyard.api import JobSpec
from tuneyard.cli.progress.live import LiveProgress
from tuneyard.cli.terminal import recording_console
from tuneyard.tracking import Event, SampleShown, TaskEvent, Tried, Warned

_EVERY_S = 1.0
_WIDTH = 110
_HTML = '<pre style="line-height:1.3;white-space:pre;font-family:monospace">{code}</pre>'
_KEPT_LINES = 20
"""Warnings and trials above the view, the newest."""

Show = Callable[[dict[str, str]], Callable[[dict[str, str]], object]]
"""Shows something by its MIME types. Returns the function that replaces it."""


def display(content: dict[str, str]) -> Callable[[dict[str, str]], object]:
    """Show something under the cell that runs."""
    from IPython.display import display as show

    handle: Any = show(content, raw=True, display_id=True)
    return lambda changed: handle.update(changed, raw=True)


class CellOutput:
    """One output of a notebook's cell. `console` records printed lines, which `keep` puts above the view."""

    def __init__(self, *, show: Show = display, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = recording_console(_WIDTH)
        self._lines: list[str] = []
        self._show, self._clock = show, clock
        self._drawn_at = -_EVERY_S
        self._update: Callable[[dict[str, str]], object] | None = None
        self._drawing = threading.Lock()

    def keep(self) -> None:
        """Put the printed lines above the view."""
        self._lines = [*self._lines, self._recorded()][-_KEPT_LINES:]

    def draw(self, view: RenderableType, *, now: bool = True) -> None:
        """Show `view`, from any thread; without `now` only if the last time was a second ago."""
        with self._drawing:
            if not now and self._clock() - self._drawn_at < _EVERY_S:
                return
            self._drawn_at = self._clock()
            self.console.print(view)
            text = self.console.export_text(clear=False).rstrip()
            content = {"text/html": _HTML.format(code="\n".join([*self._lines, self._recorded()])), "text/plain": text}
            if self._update is None:
                self._update = self._show(content)
            else:
                self._update(content)

    def _recorded(self) -> str:
        return self.console.export_html(inline_styles=True, code_format="{code}").rstrip()


class NotebookProgress:
    """A listener of a job's events."""

    def __init__(self, job: JobSpec, *, show: Show = display, clock: Callable[[], float] = time.monotonic) -> None:
        self._cell = CellOutput(show=show, clock=clock)
        self._view = LiveProgress(job, self._cell.console)

    def __enter__(self) -> Self:
        self._cell.draw(self._view)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._cell.draw(self._view)

    def __call__(self, event: Event) -> None:
        self._view(event)
        kept = isinstance(event, (Warned, Tried, SampleShown))
        if kept:
            self._cell.keep()
        self._cell.draw(self._view, now=kept or isinstance(event, TaskEvent))

    def stopping(self) -> None:
        self._view.stopping()
        self._cell.draw(self._view)
