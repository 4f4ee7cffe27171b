"""The order in which waiting tasks are told why they wait.

A scheduling cycle works out a bounded number of reasons: first for tasks that have none, in the order in which they came, then for the
oldest reasons. The reasons stand in the records as verdicts. These orders repeat the keys of the tasks, because a cycle must not walk over
all jobs. A waiting task is in one of them, unless it is set aside.
"""

from __future__ import annotations

from itertools import chain, islice, takewhile

from tuneyard_operators.hub.forecasts import Starts
from tuneyard_operators.hub.records import JobRecords
from tuneyard_operators.kube import Key

TaskKey = tuple[Key, str]
"""Key of the job, and name of the task."""
_REFRESH_S = 30.0
"""Least seconds between two looks for the reason of one task: reasons change with every job that ends."""
_AT_ONCE = 200
"""Reasons that are worked out in one cycle."""


class Explanations:
    """The two orders, and the predicted starts that reasons are told with."""

    def __init__(self, records: JobRecords) -> None:
        self._records = records
        self._due: dict[TaskKey, None] = {}
        self._told: dict[TaskKey, float] = {}
        """When each reason was worked out, the oldest first."""
        self._starts: Starts = {}

    @property
    def unfinished(self) -> bool:
        """Whether some task waits without a reason."""
        return bool(self._due)

    def add(self, task: TaskKey) -> None:
        """Have a task told a reason, after those that wait for one already."""
        self._told.pop(task, None)
        self._due[task] = None

    def drop(self, task: TaskKey) -> None:
        """A task needs no reason any more."""
        self._due.pop(task, None)
        self._told.pop(task, None)

    def told(self, task: TaskKey, now: float) -> None:
        """A task has been told a reason."""
        self.drop(task)
        self._told[task] = now

    def turn(self, now: float) -> list[TaskKey]:
        """The tasks of this cycle."""
        outdated = takewhile(lambda task: now - self._told[task] >= _REFRESH_S, self._told)
        return list(islice(chain(self._due, outdated), _AT_ONCE))

    def start_of(self, name: str, task: str) -> float | None:
        """The predicted start of a task, in seconds since the epoch; None if it is later than forecasts reach."""
        return self._starts.get((name, task))

    def foresee(self, starts: Starts) -> bool:
        """Take in a forecast. True if some task has a predicted start for the first time: its reason is due again."""
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
    """Whether a predicted start differs from the told one by more than a tenth of the wait and a minute."""
    if before is None or starts is None:
        return before is not starts
    return abs(starts - before) > max(60.0, 0.1 * (starts - now))
