"""The hub's loop, in the order in which it happens.

1. *Watch.* Caches follow JobSpecs, Clusters, Teams and ModelTemplates on the hub, and RayJobs, reports and pods on each member. A change
   puts the key of its job into the work queue; a change of capacity triggers a scheduling cycle (`cycles`).
2. *Queue.* A key waits in the queue at most once, and only one worker has it at a time.
3. *Recall.* A worker takes a key and recalls the record of its job (`records`): the goal of the spec, and the scheduler's decisions since
   the last reconciliation.
4. *Observe.* Each member lists the objects of the job's attempts, as plain values (`observed`).
5. *Advance.* `lifecycle.advance`, which is pure, decides everything: the next status, the actions, and the job's asks for the scheduler.
6. *Patch.* The status is stored, in one patch. A status that nothing depends on may wait for the next change (`write_pace`).
7. *Do.* The actions are carried out after the status is stored (`actions`), never before: a new hub repeats the actions of a killed one.
   Where there is run history (`tuneyard_operators.history`), a JobSpec is deleted for good once its end is on record.
8. *Forget.* The record of a deleted job is dropped; the record of a finished job is emptied.

All state lives in the API servers: the next leader rebuilds the same records.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tuneyard.api import Cluster, JobStatus, Phase
from tuneyard.api.templates import template_of
from tuneyard.kubernetes import NO_ROOM, unreadable
from tuneyard.tracing import exporter_from
from tuneyard_operators.history.jobs import Jobs
from tuneyard_operators.hub import last_resort
from tuneyard_operators.hub.actions import Actions, PastRuns, no_past_runs
from tuneyard_operators.hub.clock import Clock, utc_now
from tuneyard_operators.hub.connections import Connect
from tuneyard_operators.hub.cycles import Cycles
from tuneyard_operators.hub.events import Events
from tuneyard_operators.hub.forecasts import Forecasts
from tuneyard_operators.hub.goals import FINALIZER, Goal, goal_of
from tuneyard_operators.hub.guard import Unreadable
from tuneyard_operators.hub.hub_state import HubState, team_of
from tuneyard_operators.hub.job_secrets import JobSecrets
from tuneyard_operators.hub.jobspecs import JobSpecs
from tuneyard_operators.hub.lifecycle import advance
from tuneyard_operators.hub.member import Hears
from tuneyard_operators.hub.members import Members
from tuneyard_operators.hub.metrics import Metrics
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.hub.outcomes import Outcome, Verb
from tuneyard_operators.hub.placements import Placements
from tuneyard_operators.hub.records import JobRecord, JobRecords
from tuneyard_operators.hub.schedules import new_schedules
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.hub.stalled import StalledJobs
from tuneyard_operators.hub.sweep import Sweep
from tuneyard_operators.hub.teams import Teams
from tuneyard_operators.hub.templates import ModelTemplates
from tuneyard_operators.hub.workqueue import WorkQueue
from tuneyard_operators.hub.write_pace import is_news, must_be_on_record
from tuneyard_operators.kube import ApiError, Conflict, Connection, Invalid, Key, Shares
from tuneyard_operators.rendering import needed_secrets
from tuneyard_operators.tracing import TraceSender

if TYPE_CHECKING:
    from tuneyard_operators.history.writer import HistoryWriter

log = logging.getLogger(__name__)
Object = dict[str, Any]


class Hub:
    """All work of the leader. `again` opens another connection to the hub's API server; `clock`: the present time for Schedules."""

    def __init__(self, connection: Connection, again: Connect, settings: Settings, metrics: Metrics, clock: Clock = utc_now) -> None:
        self.settings = settings
        self.metrics = metrics
        self.records = JobRecords()
        shares = Shares(settings.namespace_bytes)
        self.jobs = JobSpecs(connection, self.records, on_change=self._heard, on_news=self._look_at, shares=shares)
        hears = Hears(on_job=self._on_job, on_room=self._on_room, on_listed=self._on_listed)
        self.members = Members(connection, again, settings, metrics, hears)
        self.placements = Placements(replace(settings.policy, grace_s=settings.stop_grace_s), self.records)
        self.teams = Teams(connection, self.placements, self._usages, on_change=self._on_room)
        self.cycles = Cycles(self.placements, self.jobs, self.members, self.teams, metrics, look_at=self._look_at, sync_all=self._sync_all)
        self._connection = connection
        self._queue: WorkQueue[Key] = WorkQueue(owner_of=lambda key: key[0], most_of_one=settings.at_once_of_one)
        self._seen_jobs = Jobs(self.jobs.items, self.jobs.status, self.jobs.synced)
        self._history = self._history_writer() if settings.history.url else None
        self._traces = self._trace_sender() if settings.defaults.traces else None
        self._secrets = JobSecrets(connection)
        self._actions = Actions(
            connection, self.jobs, self.members, self._queue, settings, self._may_vanish, self._past_runs(), self._secrets
        )
        self._stalled = StalledJobs(connection, self.jobs, self.members, look_again=self._look_at, may_vanish=self._may_vanish)
        self._sweep = Sweep(self.jobs, self.members, look_again=self._queue.add_after)
        self._events = Events(connection)
        self._schedules = new_schedules(connection, again, self.jobs, self._events, settings, clock, metrics.count_webhook)
        self._templates = ModelTemplates(connection, on_change=self._template_changed)
        self.state = HubState(
            self.jobs,
            self.placements,
            self.members,
            self.teams,
            self._schedules,
            self._queue,
            self._history,
            self._traces,
            self._templates,
            metrics,
        )

    async def run(self) -> None:
        """Run until cancelled."""
        work = [
            self.jobs.run(),
            self.members.run(),
            self.teams.run(),
            self._templates.run(),
            self._events.run(),
            self._schedules.run(),
            Forecasts(lambda: self.placements.scheduler, self.cycles.foresee).run(),
            self.cycles.run(),
            self._sweep.run(),
            *([self._history.run()] if self._history is not None else []),
            *([self._traces.run()] if self._traces is not None else []),
            *(self._work() for _ in range(self.settings.at_once)),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for coroutine in work:
                    group.create_task(coroutine)
        finally:
            self._queue.close()

    # --- watch: each change leads to a reconciliation, or to a cycle

    def _look_at(self, key: Key) -> None:
        self._queue.add(key)

    def _on_room(self) -> None:
        self.cycles.wake()

    def _on_job(self, key: Key) -> None:
        if self.jobs.synced.is_set():
            self._look_at(key)

    def _on_listed(self, member: str) -> None:
        for key, item in self.jobs.items.items():
            if any(cluster == member for cluster, _ in last_resort.left_on_members(item)):
                self._look_at(key)

    def _template_changed(self, name: str) -> None:
        for key, item in self.jobs.items.items():
            if template_of(item.get("spec")) == name:
                self._look_at(key)

    def _heard(self, key: Key, status: JobStatus | None) -> None:
        if self._history is not None:
            self._history.hear(key, status)
        if self._traces is not None:
            self._traces.hear(key, status)
        self._job_changed(key, status)

    def _job_changed(self, key: Key, status: JobStatus | None) -> None:
        spec = last_resort.stored_spec(self.jobs.items[key]) if status is not None else {}
        try:
            labels = self.jobs.items[key]["metadata"].get("labels") if status is not None else None
            freed = self.placements.sync(key, spec, status, time.time(), labels)
        except Exception:  # one broken job must not stop the others
            log.exception("the allocations of %s/%s cannot be counted", *key)
            freed = True
        if freed:
            self.cycles.wake()

    def _sync_all(self) -> None:
        for key in self.jobs.items:
            self._job_changed(key, self.jobs.status(key))

    # --- queue: workers take keys; the error of one job does not stop the others

    async def _work(self) -> None:
        await self.jobs.synced.wait()
        while True:
            key = await self._queue.get()
            try:
                result = await self._try_to_reconcile(key)
                self.metrics.reconciles.labels(result).inc()
            finally:
                self._queue.done(key)

    async def _try_to_reconcile(self, key: Key) -> str:
        """Reconcile a job. Returns the result for the metrics; raises nothing."""
        try:
            with self.metrics.reconcile_s.time():
                is_done = await self._reconcile(key)
            if is_done:
                self._queue.forget(key)
            return "ok"
        except Conflict:  # the watch reports the change, and queues the job again
            self._queue.retry(key)
            return "conflict"
        except ApiError as error:
            log.warning("%s/%s: %s", *key, error, extra={"job": "/".join(key)})
            if isinstance(error, Invalid):
                await self._stalled.handle(key, error)
            self._queue.retry(key)
            return "refused"
        except Unreadable as error:
            log.warning("%s/%s: %s", *key, error, extra={"job": "/".join(key)})
            await self._stalled.handle(key, error)
            return "unreadable"
        except Exception as error:  # one broken job must not stop the others
            log.exception("%s/%s cannot be reconciled", *key)
            await self._stalled.handle(key, error)
            self._queue.retry(key, base_s=5.0, longest_s=300.0)
            return "error"

    async def _reconcile(self, key: Key) -> bool:
        """Reconcile a job once. False if an action waits in a member's lane: its result is not known yet."""
        item = self.jobs.items.get(key)
        if item is None or _is_over(item):
            self._forget(key, is_gone=item is None)
            return True
        record = self.records.recall(key)
        self.jobs.check_readable(key)
        before = self.jobs.status(key)
        goal = await self._goal(record, item, before)
        now = datetime.now(UTC)
        decided = self.placements.decided(key, self._cluster)
        outcome = advance(goal, before, self._observed(before, now), decided, now, self.settings)
        record.worded_at = outcome.worded_at
        if self.placements.want(key, outcome.asks, now.timestamp(), names_team=goal.job.spec.team is not None):
            self.cycles.wake()
        if any(action.verb is Verb.ADD_FINALIZER for action in outcome.actions):
            item = await self.jobs.add_finalizer(key, item)
        await self._store(key, goal, item, before, outcome)
        if outcome.look_again_s is not None:
            self._queue.add_after(key, outcome.look_again_s)
        return await self._actions.carry_out(outcome, goal)

    # --- recall and observe

    async def _goal(self, record: JobRecord, item: Object, status: JobStatus) -> Goal:
        metadata = item["metadata"]
        has_room = NO_ROOM not in unreadable(item)
        mark = (metadata["uid"], metadata.get("generation", 0), has_room, self.members.have_images, self._templates.version(item))
        if record.goal is None or record.goal[0] != mark:
            record.goal = (mark, goal_of(item, self.settings.defaults, self.members.have_images, self._templates.find))
        goal = replace(record.goal[1], deleted="deletionTimestamp" in metadata, has_finalizer=FINALIZER in metadata.get("finalizers", []))
        return await self._with_secrets(goal, status)

    async def _with_secrets(self, goal: Goal, status: JobStatus) -> Goal:
        """The goal of a job that has not started, with its first missing Secret: the job waits for its Secrets, as a pod does."""
        needed = needed_secrets(goal.job.spec.env)
        if not needed or goal.problem or status.phase not in (Phase.PENDING, Phase.QUEUED):
            return goal
        missing = await self._secrets.lacking(goal.key[0], needed)
        if missing:
            self._queue.add_after(goal.key, self._secrets.look_again_s(goal.key[0]))
        return replace(goal, missing=missing)

    def _cluster(self, name: str) -> Cluster | None:
        member = self.members.get(name)
        return member.cluster if member is not None else None

    def _observed(self, status: JobStatus, now: datetime) -> Mapping[str, Observed]:
        """The observed objects of each attempt of a job, by the attempt's name."""
        return {
            attempt.name: self.members.observe(attempt, attempt.placement.cluster, now)
            for attempt in status.attempts
            if (attempt.door or not attempt.cleaned) and attempt.placement is not None
        }

    # --- patch

    async def _store(self, key: Key, goal: Goal, item: Object, before: JobStatus, outcome: Outcome) -> None:
        """Write a changed status, at once or when its pause is over. Raises Conflict if the JobSpec was changed meanwhile."""
        is_first, after = not item.get("status"), outcome.status
        at_once = must_be_on_record(before, outcome, is_first=is_first)
        pause_s = 0.0 if at_once else self.jobs.pause_s(key, news=is_news(before, after))
        if not outcome.changed and not is_first:
            return
        if pause_s and outcome.changed:
            self._queue.add_after(key, pause_s)
            return
        await self.jobs.write_status(key, item, after)
        for attempt in after.attempts:
            if attempt.ended_at is None:
                self.placements.recorded(key, attempt.task, time.time())
            elif attempt.cleaned and not attempt.door and attempt.placement is not None:
                self.members.forget_attempt(attempt.placement.cluster, attempt.name)
        team = team_of(key, item)
        self.state.consumption.ended(team, self.metrics.count(goal, team, before, after), datetime.now(UTC))
        self._events.tell(goal, before, after)

    # --- forget

    def _forget(self, key: Key, *, is_gone: bool) -> None:
        """Drop the record of a deleted job, and empty the record of a finished one, except for its usage."""
        self.placements.forget(key, time.time())
        record = self.records.find(key)
        if record is not None:
            record.settle()
        if is_gone:
            self.records.forget(key)
        self._queue.drop(key)

    # --- run history

    def _history_writer(self) -> HistoryWriter:
        """The writer of run history. Its libraries are loaded by a hub that has one."""
        from tuneyard_operators.history.writer import HistoryWriter

        return HistoryWriter(self._connection, self._seen_jobs, self.settings.history, self.metrics.history, self._look_at)

    def _past_runs(self) -> PastRuns:
        """What a search is given of run history."""
        own = self.settings.history
        if not own.url:
            return no_past_runs
        from tuneyard_operators.history.searches import SearchHistory

        return SearchHistory(self._connection, own.url, own.shared).given

    def _may_vanish(self, key: Key) -> bool:
        recorded = self._history is None or self._history.may_vanish(key, datetime.now(UTC))
        return recorded and (self._traces is None or self._traces.may_vanish(key))

    # --- traces

    def _trace_sender(self) -> TraceSender:
        """The sender of traces; the libraries are loaded with its first span, in its thread."""
        return TraceSender(self._seen_jobs, lambda: exporter_from(os.environ, "tuneyard-hub"), self.metrics.traces, self._look_at)

    # --- teams

    def _usages(self) -> Iterator[tuple[str, JobStatus]]:
        """Team and status of every job."""
        for key, item in self.jobs.items.items():
            yield team_of(key, item), self.jobs.status(key)


def _is_over(item: Object) -> bool:
    """True if the hub has nothing left to do for a job. A job that failed before its first attempt may be mended by its template."""
    metadata, status = item["metadata"], last_resort.stored_status(item)
    if template_of(item.get("spec")) and status.get("phase") == Phase.FAILED and not status.get("attempts"):
        return False
    waits = "deletionTimestamp" in metadata or last_resort.stored_spec(item).get("ttlAfterFinished") is not None
    return last_resort.is_settled(item) and not waits and status.get("observedGeneration") == metadata.get("generation", 0)
