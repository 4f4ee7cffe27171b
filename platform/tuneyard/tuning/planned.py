"""Expectations of points from the planner alone, corrected by the measurements of a search: for tasks without a usable history."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tuneyard.tuning.kernel import Kernel
from tuneyard.tuning.searcher import Outlook
from tuneyard.tuning.space import Point

_VARIANCE = 0.3**2
"""Variance of log speed around the plan's: one setting is 30 % better or worse than planned."""
_SHARED = 1.0
"""Variance that all points share, such as the speed of the machine."""
_NOISE = 0.05**2
_FAILS = 0.05
"""Probability that a point fails although the planner considers it possible."""


class PlannedExpectation:
    """`planned`: planned speed of a point; None without a plan. The similarity of points is the number of their equal settings."""

    def __init__(self, points: Sequence[Point], planned: Callable[[Point], float | None]) -> None:
        speeds = [planned(point) for point in points]
        self._log_planned = np.array([math.log(speed) if speed else 0.0 for speed in speeds])
        self._places = _places(points)
        self._position = {_frozen(point): at for at, point in enumerate(points)}
        self._kernel = Kernel.empty(self._places.shape[1], variance=_VARIANCE, noise=_NOISE, shared=_SHARED)
        self._fails = np.full(len(points), _FAILS)

    def outlook(self) -> Outlook:
        return Outlook(self._log_planned + self._kernel.mean(self._places), self._kernel.spread(self._places), self._fails)

    def learn(self, point: Point, measured: float | None) -> None:
        at = self._position.get(_frozen(point))
        if at is None:
            return
        if measured is None:
            self._fails[at] = 1.0
        else:
            self._kernel = self._kernel.longer(self._places[[at]], np.array([math.log(measured) - self._log_planned[at]]))


def _places(points: Sequence[Point]) -> np.ndarray:
    """One axis per value of each setting. Shape (points, axes)."""
    axes = list(dict.fromkeys(item for point in points for item in point.items()))
    return np.array([[float(point.get(name) == value) for name, value in axes] for point in points]).reshape(len(points), len(axes))


def _frozen(point: Point) -> frozenset[tuple[str, object]]:
    return frozenset(point.items())
