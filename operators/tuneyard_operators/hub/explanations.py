"""The order in which waiting tasks get the reason why they wait.

A scheduling cycle finds a bounded number of reasons: first for tasks without one, in the order of their arrival, then for the tasks with
the oldest reasons. The records hold the reasons as verdicts. The two orders here repeat the keys of the tasks, because a cycle must not
walk over all jobs. A waiting task is in one of them, unless it is set aside.
"""

from __future__ import annotations

from itertools import chain, islice, takewhile

from tuneyard_operators.forecast_process import Starts
from tuneyard_operators.hub.records import JobRecords
from tuneyard_operators.kube import Key

TaskKey = tuple[Key, str]
"""Key of the job, and name of the task."""
_REFRESH_S = 30.0
"""Least seconds between two reasons for one task, because reasons change with every job that ends."""
_AT_ONCE = 200
"""Most reasons that one cycle finds."""


class Explanations:
    """The two orders, and the predicted starts that accompany the reasons."""

    def __init__(self, records: JobRecords) -> None:
        self._records = records
        self._due: dict[TaskKey, None] = {}
        self._told: dict[TaskKey, float] = {}
        """When each task got its reason, the oldest first."""
        self._starts: Starts = {}

    @property
    def unfinished(self) -> bool:
        """Whether a task waits without a reason."""
        return bool(self._due)

    def add(self, task: TaskKey) -> None:
        """Queue a task for a reason."""
        self._told.pop(task, None)
        self._due[task] = None

    def drop(self, task: TaskKey) -> None:
        """Remove a task that needs no reason any more."""
        self._due.pop(task, None)
        self._told.pop(task, None)

    def told(self, task: TaskKey, now: float) -> None:
        """Record that a task has got its reason."""
        self.drop(task)
        self._told[task] = now

    def turn(self, now: float) -> list[TaskKey]:
        """The tasks that get a reason in this cycle."""
        outdated = takewhile(lambda task: now - self._told[task] >= _REFRESH_S, self._told)
        return list(islice(chain(self._due, outdated), _AT_ONCE))

    def start_of(self, name: str, task: str) -> float | None:
        """The predicted start of a task, in seconds since the epoch; None if it lies beyond the forecast."""
        return self._starts.get((name, task))

    def foresee(self, starts: Starts) -> bool:
        """Take in a forecast, and queue each task that gets its first predicted start. True if any task is queued for a reason."""
        self._starts = starts
        for key, task in [each for each in self._told if self._is_first_start(each)]:
            self.add((key, task))
        return self.unfinished

    def _is_first_start(self, task: TaskKey) -> bool:
        record = self._records.find(task[0])
        known = record.demand.tasks.get(task[1]) if record is not None else None
        if record is None or known is None or known.verdict is None:
            return False
        return known.verdict.starts is None and (record.name, task[1]) in self._starts


def has_moved(before: float | None, starts: float | None, now: float) -> bool:
    """Whether a predicted start differs from the one before by more than a minute, and by more than a tenth of the wait."""
    if before is None or starts is None:
        return before is not starts
    return abs(starts - before) > max(60.0, 0.1 * (starts - now))
