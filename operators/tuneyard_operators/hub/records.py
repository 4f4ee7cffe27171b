"""The hub's memory of jobs, beside the JobSpecs: one record per job, in one table.

`recall` makes a record when a JobSpec appears; `forget` drops it when the JobSpec is deleted, and `JobRecord.settle` empties it when the
job is over (`Hub._forget` calls both). A record is a cache: the next leader rebuilds all of it from JobSpecs, Clusters and Teams.
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

Mark = tuple[str, int, bool, bool, str]
"""The inputs of a goal: uid and generation of the JobSpec, whether it has room in memory, whether members have images, version of the
template.
"""


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
    """None if no write is under way; else the newest version that the watch has reported since the write began (empty if none)."""


@dataclass(slots=True)
class Demand:
    """The job in the scheduler: waiting tasks, running attempts, and decisions that no status holds yet. `Placements` writes this group."""

    team: str = ""
    """The team that the spec names while tasks wait; empty if it names none."""
    tasks: dict[str, TaskRecord] = field(default_factory=dict)
    """Tasks that wait for a placement, or have a placement that no status holds yet."""
    victims: dict[int, str] = field(default_factory=dict)
    """Reason for each attempt to preempt, by the attempt's number, until a status holds its stop."""
    allocated: frozenset[str] = frozenset()
    """Names of attempts that hold GPUs in the scheduler."""
    taught: frozenset[str] = frozenset()
    """Ended tasks that have corrected the guesses of their team."""
    repeated: frozenset[str] = frozenset()
    """Ended tasks that predict the next run of their Schedule."""


@dataclass(slots=True)
class JobRecord:
    """The hub's memory of one job. `Hub` writes `goal` and `worded_at`."""

    key: Key
    stored: StoredStatus = field(default_factory=StoredStatus)
    demand: Demand = field(default_factory=Demand)
    goal: tuple[Mark, Goal] | None = None
    """The goal, and the inputs that it was made from."""
    worded_at: datetime | None = None
    """When the status last got the reasons why the job waits."""

    @property
    def name(self) -> str:
        """The name of the job in the scheduler."""
        return f"{self.key[0]}/{self.key[1]}"

    def settle(self) -> None:
        """Empty the record of a job that is over. `stored` and `demand` stay: its usage counts for its team, its tasks for guesses."""
        self.goal = self.worded_at = None


class JobRecords:
    """The records of all jobs, by key."""

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
        """Drop the record of a deleted job."""
        self._records.pop(key, None)
