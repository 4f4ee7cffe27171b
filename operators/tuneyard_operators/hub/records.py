"""What the hub knows about jobs beside the JobSpecs themselves: one record per job, in one table.

`recall` makes a record when a JobSpec is heard of; `forget` drops it when the JobSpec is gone, and `JobRecord.settle` empties it when the
job is over (`Hub._forget` calls both). No record is truth: all of it can be made anew from JobSpecs, Clusters and Teams by the next leader.
Each group of a record has one writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from tuneyard.api import JobStatus
from tuneyard.api.wire import Reading
from tuneyard_operators.hub.decisions import TaskRecord
from tuneyard_operators.hub.goals import Goal
from tuneyard_operators.kube import Key

Mark = tuple[str, int, bool, str]
"""What a goal is made from: uid and generation of the JobSpec, whether members have images, version of the template."""


@dataclass(slots=True)
class StoredStatus:
    """The stored status of a job, and the hub's writes of it. `JobSpecs` writes this group."""

    version: str = ""
    reading: Reading[JobStatus] | None = None
    """The status as parsed from `version` of the JobSpec."""
    is_unfinished: bool = False
    written_s: float | None = None
    """When a status was last written, or first due to be written, by the clock of the event loop."""
    underway: str | None = None
    """None: no write is under way. Else the newest version that the watch has brought since the write began."""


@dataclass(slots=True)
class Demand:
    """The job in the scheduler: what waits, what runs, and decisions that no status holds yet. `Placements` writes this group."""

    team: str = ""
    """The team that the spec names while tasks wait; empty if it names none."""
    tasks: dict[str, TaskRecord] = field(default_factory=dict)
    """Tasks that wait for a placement, or whose placement no status holds yet."""
    victims: dict[int, str] = field(default_factory=dict)
    """Attempts to preempt whose stop no status holds yet, by number: the reason of each."""
    allocated: frozenset[str] = frozenset()
    """Names of attempts that hold GPUs in the scheduler."""
    taught: frozenset[str] = frozenset()
    """Ended tasks that have corrected the guesses of their team."""


@dataclass(slots=True)
class JobRecord:
    """What the hub knows about one job. `Hub` writes `goal` and `worded_at`."""

    key: Key
    stored: StoredStatus = field(default_factory=StoredStatus)
    demand: Demand = field(default_factory=Demand)
    goal: tuple[Mark, Goal] | None = None
    """The goal, and the mark of what it was made from."""
    worded_at: datetime | None = None
    """When the status last got the reasons why the job waits."""

    @property
    def name(self) -> str:
        """The name of the job in the scheduler."""
        return f"{self.key[0]}/{self.key[1]}"

    def settle(self) -> None:
        """Empty the record of a job that is over. Its status still counts for its team, and its tasks for guesses."""
        self.goal = self.worded_at = None


class JobRecords:
    """The table of records by key."""

    def __init__(self) -> None:
        self._records: dict[Key, JobRecord] = {}

    def __iter__(self) -> Iterator[JobRecord]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def recall(self, key: Key) -> JobRecord:
        """The record of a job, made if there is none."""
        found = self._records.get(key)
        if found is None:
            self._records[key] = found = JobRecord(key)
        return found

    def find(self, key: Key) -> JobRecord | None:
        """The record of a job, or None."""
        return self._records.get(key)

    def forget(self, key: Key) -> None:
        """Drop the record of a job that is gone."""
        self._records.pop(key, None)
