"""Durations of tasks that run again and again: the runs of a Schedule predict its next one.

They follow from the set of jobs that exist, so that the next leader of a hub predicts the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from tuneyard.api import Attempt, JobStatus, Phase
from tuneyard.api.moments import moment_of
from tuneyard.catalog import canonical_sku
from tuneyard.federation.policy import speed_factor
from tuneyard.federation.pools import Key
from tuneyard.federation.world import Ask

_LATEST = 5
"""The runs whose median is the prediction: data grow, and one run may have had a bad day."""


class Repeats:
    """Ended tasks of series, in seconds of one GPU of the reference SKU."""

    def __init__(self) -> None:
        self._series: dict[str, dict[Key, tuple[float, float]]] = {}
        self._by_key: dict[Key, str] = {}

    def learn(self, key: Key, series: str, gpu_seconds: float, ended: float) -> bool:
        """Add a task that has succeeded. True: it is new, so that waiting asks of the series are to be predicted again."""
        if not series or key in self._by_key or not (0 < gpu_seconds < math.inf and math.isfinite(ended)):
            return False
        self._by_key[key] = series
        self._series.setdefault(series, {})[key] = (ended, gpu_seconds)
        return True

    def forget(self, key: Key) -> None:
        """Remove a task."""
        series = self._by_key.pop(key, None)
        if series is not None:
            del self._series[series][key]

    def expected(self, ask: Ask) -> Ask:
        """The ask with the duration of the latest runs of its series. Its own pace and its author's guess are better."""
        if ask.basis not in ("plan", "assumed") or not self._series.get(ask.series):
            return ask
        latest = sorted(self._series[ask.series].values())[-_LATEST:]
        return replace(ask, seconds=median(seconds for _, seconds in latest) / max(1, ask.worlds[0]), basis="history")


def series_of(namespace: str, schedule: str, task: str) -> str:
    """The name of a series; empty for a job that no Schedule has created."""
    return f"{namespace}/{schedule}/{task}" if schedule else ""


def spent_by(status: JobStatus) -> Iterator[tuple[str, float, float]]:
    """Tasks that have succeeded: name, seconds of one GPU of the reference SKU over all attempts, and time of the end."""
    for task in status.tasks:
        own = [each for each in status.attempts if each.task == task.name and each.placement and each.ended_at]
        if task.phase is Phase.SUCCEEDED and own:
            yield task.name, sum(map(_gpu_seconds, own)), moment_of(own[-1].ended_at or "").timestamp()


def _gpu_seconds(attempt: Attempt) -> float:
    began = attempt.started_at or attempt.placed_at
    if not began or not attempt.ended_at or attempt.placement is None:
        return 0.0
    seconds = (moment_of(attempt.ended_at) - moment_of(began)).total_seconds()
    return max(0.0, seconds) * max(1, attempt.placement.gpus) * speed_factor(canonical_sku(attempt.placement.sku))
