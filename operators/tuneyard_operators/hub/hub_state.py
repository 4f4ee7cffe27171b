"""The present state of a hub as samples for Prometheus, read when Prometheus asks.

Each method is a source of its own (`sources`): the error of one takes no other away. That of teams comes first: it gives the labels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tuneyard_operators.hub import last_resort
from tuneyard_operators.hub.jobspecs import JobSpecs
from tuneyard_operators.hub.members import Members
from tuneyard_operators.hub.metrics import Metrics
from tuneyard_operators.hub.placements import Placements
from tuneyard_operators.hub.schedules import Schedules
from tuneyard_operators.hub.teams import Teams
from tuneyard_operators.hub.templates import ModelTemplates
from tuneyard_operators.hub.workqueue import WorkQueue
from tuneyard_operators.kube import Cache, Key
from tuneyard_operators.metrics import (
    Consumption,
    JobCounters,
    ListedJob,
    Sample,
    families,
    gpu_series,
    job_series,
    name_of,
    phase_series,
    queue_series,
    schedule_series,
    team_series,
)

if TYPE_CHECKING:
    from tuneyard_operators.history.writer import HistoryWriter
    from tuneyard_operators.tracing.sender import TraceSender


class HubState:
    def __init__(
        self,
        jobs: JobSpecs,
        placements: Placements,
        members: Members,
        teams: Teams,
        schedules: Schedules,
        queue: WorkQueue[Key],
        history: HistoryWriter | None,
        traces: TraceSender | None,
        templates: ModelTemplates,
        metrics: Metrics,
    ) -> None:
        self.consumption = Consumption(datetime.now(UTC), metrics.teams.label)
        self._jobs = jobs
        self._placements = placements
        self._members = members
        self._teams = teams
        self._schedules = schedules
        self._queue = queue
        self._history = history
        self._traces = traces
        self._templates = templates
        self._metrics = metrics
        self._names = metrics.teams
        self._counters = JobCounters()

    @property
    def sources(self) -> tuple[Callable[[], Iterator[Sample]], ...]:
        return (self._of_teams, self._of_phases, self._of_queue, self._of_members, self._of_jobs, self._of_schedules, self._of_hub)

    def _of_phases(self) -> Iterator[Sample]:
        return phase_series(last_resort.stored_status(item) for item in self._jobs.items.values())

    def _of_queue(self) -> Iterator[Sample]:
        return queue_series(self._placements.queue(), time.time(), self._names.label)

    def _of_members(self) -> Iterator[Sample]:
        return self._members.series()

    def _of_jobs(self) -> Iterator[Sample]:
        now = datetime.now(UTC)
        jobs = list(self._listed())
        self.consumption.advance(((job.team, attempt) for job in jobs for attempt in job.active), now)
        yield from self.consumption.series()
        yield from gpu_series(jobs, self._members.pools(), frozenset(self._members.usable()))
        yield from job_series((job for job in jobs if not job.status.phase.final), now, self._counters)

    def _of_teams(self) -> Iterator[Sample]:
        objects = (name for item in self._teams.cache.items.values() if (name := name_of(item)) is not None)
        lost = self._names.know(objects, {team_of(key, item) for key, item in self._jobs.items.items()})
        self._metrics.forget_teams(lost)
        self.consumption.forget(lost)
        return team_series(self._teams.cache.items.values(), datetime.now(UTC), self._names.label)

    def _of_schedules(self) -> Iterator[Sample]:
        return schedule_series(self._schedules.items.items(), datetime.now(UTC))

    def _of_hub(self) -> Iterator[Sample]:
        yield families.QUEUE_DEPTH, (), len(self._queue)
        phases = ((key, item, last_resort.stored_status(item).get("phase")) for key, item in self._jobs.items.items())
        unfinished = ((key, item) for key, item, phase in phases if phase not in last_resort.FINAL)
        yield families.STALLED_JOBS, (), sum(last_resort.is_stalled(item) or not self._jobs.is_readable(key) for key, item in unfinished)
        own: tuple[Cache, ...] = (self._jobs, self._templates, self._teams.cache, self._members.clusters, self._schedules.cache)
        for cache in own:
            yield families.CACHE_LAG, ("hub", cache.kind.plural), cache.lag_s
            yield families.UNREADABLE, ("hub", cache.kind.plural), len(cache.unreadable)
        for member in self._members.all():
            for cache in member.caches.needed:
                if cache is not member.caches.foreign:  # pods have one series
                    yield families.CACHE_LAG, (member.name, cache.kind.plural), cache.lag_s
                    yield families.UNREADABLE, (member.name, cache.kind.plural), len(cache.unreadable)
        if self._history is not None:
            yield from self._history.series()
        if self._traces is not None:
            yield from self._traces.series()

    def _listed(self) -> Iterator[ListedJob]:
        """Unfinished jobs with attempts, and jobs whose last attempts still hold GPUs."""
        for key, item in self._jobs.items.items():
            stored = last_resort.stored_status(item)
            attempts = list(last_resort.stored_attempts(item))
            if attempts and (stored.get("phase") not in last_resort.FINAL or not all(each.get("endedAt") for each in attempts)):
                yield ListedJob(*key, self._names.label(team_of(key, item)), self._jobs.status(key), item["metadata"].get("uid", ""))


def team_of(key: Key, item: last_resort.Object) -> str:
    """The team of a JobSpec: the one that it names, else its namespace."""
    return str(last_resort.stored_spec(item).get("team") or key[0])
