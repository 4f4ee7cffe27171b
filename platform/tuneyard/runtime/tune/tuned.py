"""The interface of a search to the task that it tunes. `TunedTraining` and `TunedScoring` implement it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.tuning import Expectation, Point, Space, Trial

PLANNED = "by the planner's estimates"
"""`guess` of a task that the planner knows."""


class Tuned(Protocol):
    """A task with open settings. The empty point is the task as in its file. All methods but `space` and `why_not` take points that can
    work here."""

    unit: str
    """The unit of a trial's speed, per second: tokens or rows."""
    known: int
    """Timed runs in history from which the search learns."""
    guess: str
    """What is expected without such runs, in words."""

    @property
    def space(self) -> Space:
        """The settings that are tried. The legal points are those that can work here."""
        ...

    def why_not(self, point: Point, /) -> str:
        """Why a point cannot work here; empty if it can."""
        ...

    def devices(self, point: Point, /) -> int:
        """Devices of all workers or engines."""
        ...

    def plan(self) -> dict[str, Any]:
        """The plan of the task as in its file, for the report."""
        ...

    def row(self, point: Point, /) -> dict[str, Any] | None:
        """The point's row of history, by the columns that predictors read; None for a task that history has no rows for."""
        ...

    def predicted(self, point: Point, /) -> float | None:
        """The speed that was expected before the search; None without an expectation."""
        ...

    def expectation(self, points: Sequence[Point], share: Callable[[Point], float], /) -> Expectation:
        """What is expected of points, which learns. `share`: factor from the speed over all devices to the worth of a point."""
        ...

    def measure(self, gang: int, point: Mapping[str, Any], number: int, limit_s: float, should_stop: ShouldStop, /) -> Trial:
        """Measure a point by a short attempt under this number, on one of the search's gangs (from 0). Raises TuneyardError for a failure
        that says nothing about settings."""
        ...
