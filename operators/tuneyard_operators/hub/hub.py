"""The hub's one loop: JobSpecs are looked at whenever anything of theirs changes, here or on a member, and brought a step further."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tuneyard.admission import ask_of
from tuneyard.api import Attempt, BadInput, JobStatus, Phase, PlacementStatus
from tuneyard.api.templates import template_of
from tuneyard.federation import Place, Undecidable, own_sku
from tuneyard_operators.hub import doing, last_resort
from tuneyard_operators.hub.connecting import Connect
from tuneyard_operators.hub.data_waits import data_waits
from tuneyard_operators.hub.events import Events
from tuneyard_operators.hub.forecasts import Forecasts, Starts
from tuneyard_operators.hub.goals import FINALIZER, goal_of, output_of
from tuneyard_operators.hub.guard import Unreadable, reason_of
from tuneyard_operators.hub.jobspecs import JobSpecs
from tuneyard_operators.hub.lifecycle import Action, Goal, Outcome, Verb, advance
from tuneyard_operators.hub.member import Hears, Member
from tuneyard_operators.hub.members import Members
from tuneyard_operators.hub.metrics import Metrics
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.hub.placing import Placing, job_key, placement_of
from tuneyard_operators.hub.recording import Recording
from tuneyard_operators.hub.schedules import Schedules
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.hub.stalled import StalledJobs
from tuneyard_operators.hub.status_size import fitted
from tuneyard_operators.hub.sweep import Sweep
from tuneyard_operators.hub.teams import Teams, usage_of
from tuneyard_operators.hub.templates import ModelTemplates
from tuneyard_operators.hub.workqueue import WorkQueue
from tuneyard_operators.kube import JOBSPEC, ApiError, Conflict, Connection, Invalid, Key, Missing
from tuneyard_operators.rendering import needed_secrets

log = logging.getLogger(__name__)
_BETWEEN_CYCLES_S = 0.1
_LONGEST_PAUSE_S = 30.0
_SECRET_EVERY_S = 10.0
_CLEAN_AGAIN_S = 3.0
_MOST_TRIES = 3
"""How often a RayJob is tried that cannot be made, before its attempt counts as refused."""
Object = dict[str, Any]


class Hub:
    """Everything that the leader does. `run` goes on until it is cancelled. `again` makes another connection to the hub's API server."""

    def __init__(self, connection: Connection, again: Connect, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.jobs = JobSpecs(connection, on_change=self._job_changed, on_news=self._on_news)
        hears = Hears(on_job=self._on_job, on_room=self._wake_placing, on_listed=self._on_listed)
        self.members = Members(connection, again, settings, metrics, hears)
        self.placing = Placing(replace(settings.policy, grace_s=settings.stop_grace_s))
        self._recording = Recording(self.placing, self._recorded)
        self.teams = Teams(connection, self.placing, self._usages, on_change=self._wake_placing)
        self._schedules = Schedules(connection, self.jobs)
        self._connection = connection
        self._queue: WorkQueue[Key] = WorkQueue()
        self._stalled = StalledJobs(connection, self.jobs, self.members, look_again=self._queue.add)
        self._sweep = Sweep(self.jobs, self.members, look_again=self._queue.add_after)
        self._events = Events(connection)
        self._room = asyncio.Event()
        self._templates = ModelTemplates(connection, on_change=self._template_changed)
        self._goals: dict[Key, tuple[tuple[str, int, bool, str], Goal]] = {}
        self._alive = time.monotonic()

    async def run(self) -> None:
        work = [
            self.jobs.run(),
            self.members.run(),
            self.teams.run(),
            self._templates.run(),
            self._events.run(),
            self._schedules.run(),
            Forecasts(lambda: self.placing.scheduler, self._foresee).run(),
            self._place_forever(),
            self._sweep.run(),
        ]
        work += [self._work_forever() for _ in range(self.settings.at_once)]
        async with asyncio.TaskGroup() as group:
            for coroutine in work:
                group.create_task(coroutine)

    @property
    def stuck(self) -> str:
        """Why the hub does not live any more, or an empty text."""
        idle = time.monotonic() - self._alive
        return f"no scheduling cycle for {idle:.0f} s" if idle > 120 else ""

    def refresh(self) -> None:
        """Bring the gauges up to date."""
        phases = [str(last_resort.stored_status(item).get("phase", Phase.PENDING)) for item in self.jobs.items.values()]
        for phase in Phase:
            self.metrics.jobs.labels(phase).set(phases.count(phase))
        self.metrics.data_wait.clear()
        for key, share in data_waits(self.jobs.items):
            self.metrics.data_wait.labels(*key).set(share)
        oldest = min((ask.created for asks in self.placing.asks.values() for ask in asks.values()), default=None)
        self.metrics.queue_age.set(0 if oldest is None else time.time() - oldest)
        self.members.refresh()

    def _on_job(self, key: Key) -> None:
        if self.jobs.synced.is_set():
            self._queue.add(key)

    def _on_listed(self, member: str) -> None:
        for key, item in self.jobs.items.items():
            if any(cluster == member for cluster, _ in last_resort.left_on_members(item)):
                self._queue.add(key)

    def _job_changed(self, key: Key, status: JobStatus | None) -> None:
        spec = last_resort.stored_spec(self.jobs.items[key]) if status is not None else {}
        try:
            freed = self.placing.hold(key, spec, status, time.time())
        except Exception:  # what one job holds cannot be counted: the others' still can
            log.exception("what %s/%s holds cannot be counted", *key)
            freed = True
        if freed:
            self._wake_placing()

    def _usages(self) -> Iterator[tuple[str, JobStatus]]:
        """Team and status of every job."""
        for key, item in self.jobs.items.items():
            yield str(last_resort.stored_spec(item).get("team") or key[0]), self.jobs.status(key)

    def _template_changed(self, name: str) -> None:
        for key, item in self.jobs.items.items():
            if template_of(item.get("spec")) == name:
                self._queue.add(key)

    def _on_news(self, key: Key) -> None:
        self._queue.add(key)

    def _foresee(self, starts: Starts) -> None:
        if self.placing.foresee(starts):
            self._wake_placing()

    def _wake_placing(self) -> None:
        self._room.set()

    async def _place_forever(self) -> None:
        await self.jobs.synced.wait()
        pause_s = _BETWEEN_CYCLES_S
        while True:
            soon = self.placing.scheduler.again_at - time.time() if self.placing.asks else _LONGEST_PAUSE_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._room.wait(), min(max(soon, _BETWEEN_CYCLES_S), _LONGEST_PAUSE_S))
            self._room.clear()
            try:
                self._cycle()
                self._alive, pause_s = time.monotonic(), _BETWEEN_CYCLES_S
            except Undecidable as error:
                log.exception("%s/%s is set aside", error.ask.job, error.ask.task)
                self._alive = time.monotonic()
                self._start_over()
                self._queue.add(job_key(error.ask.job))
            except Exception:
                log.exception("a scheduling cycle came to nothing")
                self._start_over()
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)

    def _cycle(self) -> None:
        # Every job must have been looked at once: what their attempts hold is known by then, and who waits.
        if not (self.placing.asks and self.members.synced and self.teams.synced):
            return
        if self.placing.learn_skus(self.members.all()):  # asks that may use them are made anew before the next cycle
            for key in self.placing.asks:
                self._queue.add(key)
            self._wake_placing()
            return
        with self.metrics.cycle_s.time():
            news = self.placing.cycle(self.members.all(), self.members.away(), time.time())
        for key in news:
            self._queue.add(key)
        if self.placing.unfinished:
            self._wake_placing()

    def _start_over(self) -> None:
        """Make the scheduler anew, as the next leader would: all it knows stands in JobSpecs, Clusters and Teams."""
        try:
            self.placing.start_over(time.time())
        except Exception:
            log.exception("the scheduler does not know all that it should")
        for key in self.jobs.items:
            self._job_changed(key, self.jobs.status(key))
        self._wake_placing()

    async def _work_forever(self) -> None:
        await self.jobs.synced.wait()
        while True:
            key = await self._queue.get()
            result = "ok"
            try:
                with self.metrics.reconcile_s.time():
                    if await self._reconcile(key):
                        self._queue.forget(key)
            except Conflict:
                result = "conflict"  # the watch tells of the change, and that brings it back
                self._queue.retry(key)
            except ApiError as error:
                result = "refused"
                log.warning("%s/%s: %s", *key, error, extra={"job": "/".join(key)})
                if isinstance(error, Invalid):
                    await self._stalled.handle(key, error)
                self._queue.retry(key)
            except Unreadable as error:
                result = "unreadable"
                log.warning("%s/%s: %s", *key, error, extra={"job": "/".join(key)})
                await self._stalled.handle(key, error)
            except Exception as error:  # one broken job must not stop the others
                result = "error"
                log.exception("%s/%s cannot be brought further", *key)
                await self._stalled.handle(key, error)
                self._queue.retry(key, base_s=5.0, longest_s=300.0)
            finally:
                self.metrics.reconciles.labels(result).inc()
                self._queue.done(key)

    async def _reconcile(self, key: Key) -> bool:
        """Bring a job one step further. False where something has been handed to a member, whose outcome is not known yet."""
        item = self.jobs.items.get(key)
        if item is None or _is_over(item):
            self._forget(key)
            return True
        self.jobs.check_readable(key)
        goal = await self._goal(key, item)
        before = self.jobs.status(key)
        now = datetime.now(UTC)
        outcome = advance(goal, before, self._observed(before, now), now, self.settings)
        if any(action.verb is Verb.HOLD for action in outcome.actions):
            item = await self.jobs.hold(key, item)
        outcome = self._place(key, goal, outcome, now)
        outcome = replace(outcome, status=fitted(outcome.status))
        pause_s = 0.0 if _must_be_on_record(item, before, outcome) else self.jobs.pause_s(key, news=_is_news(before, outcome.status))
        if pause_s and outcome.status != before:
            self._queue.add_after(key, pause_s)
        else:
            await self._store(key, goal, item, before, outcome.status)
        for action in outcome.actions:
            await self._do(action, goal, outcome.status)
        if outcome.look_again_s is not None:
            self._queue.add_after(key, outcome.look_again_s)
        return all(action.attempt is None for action in outcome.actions)

    async def _goal(self, key: Key, item: Object) -> Goal:
        metadata = item["metadata"]
        mark = (metadata["uid"], metadata.get("generation", 0), self.members.have_images, self._templates.version(item))
        known = self._goals.get(key)
        if known is None or known[0] != mark:
            self._goals[key] = known = (mark, goal_of(item, self.settings.defaults, self.members.have_images, self._templates.find))
        goal = replace(known[1], deleted="deletionTimestamp" in metadata, held=FINALIZER in metadata.get("finalizers", []))
        return await self._with_secrets(key, goal)

    async def _with_secrets(self, key: Key, goal: Goal) -> Goal:
        """A job that is about to start waits for its Secrets, as a pod would."""
        phase = self.jobs.status(key).phase
        needed = needed_secrets(goal.job.spec.env)
        if not needed or goal.problem or phase not in (Phase.PENDING, Phase.QUEUED):
            return goal
        try:
            await doing.read_secrets(self._connection, key[0], needed)
        except Missing as error:
            self._queue.add_after(key, _SECRET_EVERY_S)
            return replace(goal, missing=error.message)
        return goal

    def _observed(self, status: JobStatus, now: datetime) -> Mapping[str, Observed]:
        found: dict[str, Observed] = {}
        for attempt in status.attempts:
            if attempt.cleaned or attempt.placement is None:
                continue
            member = self.members.get(attempt.placement.cluster)
            if member is not None:
                found[attempt.name] = member.observe(attempt, now)
            elif self.members.is_gone(attempt.placement.cluster):
                # Nobody can look any more: the Cluster object was deleted. What ran there counts as lost, and is not waited for.
                gone = f"the Cluster {attempt.placement.cluster} was removed from the hub"
                found[attempt.name] = Observed() if attempt.ended_at else Observed(known=False, unreachable_s=1e9, why_unreachable=gone)
            else:
                found[attempt.name] = self.members.unconnected(attempt.placement.cluster, now)
        return found

    def _place(self, key: Key, goal: Goal, outcome: Outcome, now: datetime) -> Outcome:
        """Ask for the places that the job wants, and record what was decided for it."""
        created = goal.created.timestamp()
        asks = {task: ask_of(goal.job, created, task, outcome.status, self.placing.skus) for task in outcome.ready}
        if self.placing.want(key, asks, now.timestamp(), names_team=goal.job.spec.team is not None):
            self._wake_placing()
        return self._recording.record(key, goal, outcome, self.jobs.status(key).message, now)

    def _recorded(self, place: Place) -> PlacementStatus:
        """A decision in the words of the Cluster: its own name of the kind, and its price."""
        member = self.members.get(place.cluster)
        name = own_sku(member.cluster, place.sku) if member is not None else place.sku
        sku = next((sku for sku in member.cluster.spec.skus if sku.name == name), None) if member is not None else None
        return placement_of(place, sku.price_per_gpu_hour if sku is not None else 0.0, name, self.placing.guessed_s(place))

    async def _store(self, key: Key, goal: Goal, item: Object, before: JobStatus, after: JobStatus) -> None:
        """Write the status where it has changed. Raises Conflict where the JobSpec was changed meanwhile."""
        if not goal.problem and not (after.output and after.attempts):  # until it begins, its template may change where it writes
            after.output = output_of(goal, self.settings.defaults)
        if after == before and item.get("status"):
            return
        after.usage.gpu_hours, after.usage.cost = usage_of(after.attempts, datetime.now(UTC))
        await self.jobs.write_status(key, item, after)
        for attempt in after.attempts:
            if attempt.ended_at is None:
                self.placing.recorded(key, attempt.task, time.time())
            member = self.members.get(attempt.placement.cluster) if attempt.cleaned and attempt.placement is not None else None
            if member is not None:
                member.forget(attempt.name)
        self._count(before, after)
        self._events.tell(goal, before, after)

    def _count(self, before: JobStatus, after: JobStatus) -> None:
        ended = {attempt.number for attempt in before.attempts if attempt.ended_at}
        for attempt in after.attempts:
            if attempt.ended_at and attempt.number not in ended:
                self.metrics.attempts.labels(str(attempt.phase)).inc()
                if attempt.failure:
                    self.metrics.failures.labels(attempt.failure).inc()

    async def _do(self, action: Action, goal: Goal, status: JobStatus) -> None:
        key = (goal.job.metadata.namespace, goal.job.metadata.name)
        if action.verb is Verb.RELEASE:
            await self.jobs.release(key, self.jobs.items[key])
        elif action.verb is Verb.REMOVE:
            await self._connection.delete(JOBSPEC, *key)
        elif action.attempt is not None and action.attempt.placement is not None:
            member = self.members.get(action.attempt.placement.cluster)
            if member is None or not member.reachable:
                self._queue.retry(key)
                return
            work = partial(self._on_member, member, action.verb, action.attempt, goal, status.output)
            member.lane.hand(action.attempt.name, work, then=partial(self._queue.add, key))

    async def _on_member(self, member: Member, verb: Verb, attempt: Attempt, goal: Goal, output: str) -> None:
        """Do what is to be done for an attempt, when its turn has come in its member's lane."""
        key = (goal.job.metadata.namespace, goal.job.metadata.name)
        try:
            if not member.reachable:
                self._queue.retry(key)
                return
            if verb is Verb.START:
                if self._is_wanted(key, goal, attempt) and not member.has(attempt.name):
                    await doing.start(goal, attempt, output, member, self._connection, self.settings)
            elif verb is Verb.STOP:
                await doing.stop(attempt, member, self.settings)
            elif verb is Verb.CLEAN and not await member.remove(attempt.name):
                self._queue.add_after(key, _CLEAN_AGAIN_S)
            self._queue.forget(key)
        except (Invalid, BadInput) as error:
            member.refusals[attempt.name] = str(error)
            self._queue.add(key)
        except ApiError as error:
            log.warning("%s: %s", attempt.name, error)
            self._queue.retry(key)
        except Exception as error:  # one broken attempt must not stop the others
            log.exception("%s on %s: %s failed", attempt.name, member.name, verb)
            if verb is Verb.START and self._queue.failures(key) >= _MOST_TRIES:
                member.refusals[attempt.name] = reason_of(error)
            self._queue.retry(key, base_s=5.0, longest_s=300.0)

    def _is_wanted(self, key: Key, goal: Goal, attempt: Attempt) -> bool:
        """False for an attempt that was given up, or whose JobSpec went, while it waited to be started."""
        item = self.jobs.items.get(key)
        if item is None or item["metadata"]["uid"] != goal.uid or "deletionTimestamp" in item["metadata"]:
            return False
        return any(own.number == attempt.number and not own.created and own.ended_at is None for own in self.jobs.status(key).attempts)

    def _forget(self, key: Key) -> None:
        self._goals.pop(key, None)
        self._recording.forget(key)
        self.placing.forget(key, time.time())


def _must_be_on_record(item: Object, before: JobStatus, outcome: Outcome) -> bool:
    """Whether something is done, freed or promised on the ground of a status: it is written at once then, and not with the next change."""
    after = outcome.status
    acts = any(action.verb is not Verb.HOLD for action in outcome.actions)
    if not item.get("status"):  # where it waits, and what for, will be known after the next scheduling cycle
        return bool(acts or after.message or after.attempts or after.phase.final)
    weighty = [
        (
            status.phase.final,
            status.observed_generation,
            [(a.number, a.stopping, a.ended_at, a.cleaned) for a in status.attempts],
            [task.owed_since for task in status.tasks],
        )
        for status in (before, after)
    ]
    return acts or weighty[0] != weighty[1]


def _is_news(before: JobStatus, after: JobStatus) -> bool:
    """Whether people wait to hear it: how far a job is by its phase, and when it is expected to start."""
    return before.phase != after.phase or (before.expected_start is None) != (after.expected_start is None)


def _is_over(item: Object) -> bool:
    """True if nothing is left to do for a job, nor to wait for: one that was refused before it began may be saved by its template."""
    metadata, status = item["metadata"], last_resort.stored_status(item)
    if template_of(item.get("spec")) and status.get("phase") == Phase.FAILED and not status.get("attempts"):
        return False
    waits = "deletionTimestamp" in metadata or last_resort.stored_spec(item).get("ttlAfterFinished") is not None
    return last_resort.is_settled(item) and not waits and status.get("observedGeneration") == metadata.get("generation", 0)
