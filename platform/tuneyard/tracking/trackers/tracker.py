"""A tracker, and the facts about its kind that the rest of Tuneyard reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class TrackedRun:
    """The job, as a tracker sees it. `folder`: the tracker's local files; it may not exist yet. `warn`: tells people a fact, once."""

    job: str
    team: str
    folder: Path
    warn: Callable[[str], None]


class Tracker(Protocol):
    """A run at a tracker. All calls come from one thread, may wait for a server, and may raise any exception.

    Names are paths such as `train/loss`, of words that every tracker accepts.
    """

    def parameters(self, values: Mapping[str, Any]) -> None:
        """Settings. A later attempt of a task may change a value."""

    def metrics(self, values: Mapping[str, float], *, axis: str, step: int | None) -> None:
        """Measurements of a task at one step. `axis`: the name of the steps, which start again with each task and attempt. `step` None:
        a result of the whole task."""

    def note(self, name: str, text: str) -> None:
        """A text about the run, such as the status of a task."""

    def flush(self) -> None:
        """Called every few seconds: write what was kept back."""

    def end(self, status: str) -> None:
        """The job ended: succeeded, failed or stopped."""


@dataclass(frozen=True, kw_only=True)
class TrackerKind:
    """A kind of tracker. `open` gets the group of `spec.tracking`, and raises any exception.

    `extra`: the extra of pyproject.toml that brings the client. `refusal`: the reason that a job cannot start in an environment, and the
    next step; None without one.
    """

    title: str
    extra: str
    open: Callable[[Any, TrackedRun], Tracker]
    refusal: Callable[[Any, Mapping[str, str]], tuple[str, str] | None] = lambda _settings, _environment: None
