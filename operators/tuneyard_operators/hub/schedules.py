"""Runs the Schedules of the hub. Every few seconds it creates the JobSpecs of due runs; a Schedule owns the JobSpecs of its runs.

The step of each Schedule is `tuneyard.schedules.advance_schedule`, which is pure. Its order here survives a kill at any place:

1. Jobs are cancelled and created. A name depends on the run alone, so that a job is created once.
2. The status is stored. If the hub is killed before, the next one finds the jobs under their names.
3. Events are posted, old jobs are deleted, and messages and looks for data begin in the background (`webhooks`, `data_looks`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from tuneyard.api import STORED, Cluster, Schedule
from tuneyard.api.schedule import ScheduleGoal
from tuneyard.api.schedule_status import ScheduleStatus
from tuneyard.api.templates import template_of
from tuneyard.api.wire import read
from tuneyard.kubernetes import over, unreadable
from tuneyard.schedules import LastGood, ScheduleStep, Start, advance_schedule, expression_problems, last_good, with_notices
from tuneyard_operators.hub.clock import Clock, at, utc_now, written
from tuneyard_operators.hub.connections import Connect, connect
from tuneyard_operators.hub.data_looks import DataLooks
from tuneyard_operators.hub.events import Events
from tuneyard_operators.hub.goals import stub_spec
from tuneyard_operators.hub.guard import STALLED, Guard, Unreadable, with_stalled
from tuneyard_operators.hub.jobspecs import JobSpecs
from tuneyard_operators.hub.name_nodes import NameNodes
from tuneyard_operators.hub.schedule_runs import is_owned, jobspec_of, run_of, runs_by_schedule
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.hub.webhooks import Webhooks
from tuneyard_operators.kube import (
    JOBSPEC,
    SCHEDULE,
    AlreadyExists,
    ApiError,
    Cache,
    Conflict,
    Connection,
    Key,
    Missing,
    Shares,
    Unreachable,
)
from tuneyard_operators.logs.limits import Limits
from tuneyard_operators.logs.member_keys import MemberKeys
from tuneyard_operators.logs.storage_keys import StorageKeys

log = logging.getLogger(__name__)
EVERY_S = 2.0
Object = dict[str, Any]


class Schedules:
    """`clock`: the present time; `every_s`: seconds between two looks at all Schedules."""

    def __init__(
        self,
        connection: Connection,
        jobs: JobSpecs,
        events: Events,
        looks: DataLooks,
        webhooks: Webhooks,
        *,
        shares: Shares | None = None,
        clock: Clock = utc_now,
        every_s: float = EVERY_S,
    ) -> None:
        self._connection = connection
        self._jobs = jobs
        self._events = events
        self._looks = looks
        self._webhooks = webhooks
        self._clock = clock
        self._every_s = every_s
        self.cache = Cache(connection, SCHEDULE, shares=shares)
        self._guard: Guard[Key] = Guard("schedule")
        self._quiet: dict[Key, _Quiet] = {}

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.cache.run())
                group.create_task(self._follow())
        finally:
            self._looks.close()
            self._webhooks.close()

    @property
    def items(self) -> Mapping[Key, Object]:
        """The Schedules, by key."""
        return self.cache.items

    async def _follow(self) -> None:
        await self.cache.synced.wait()
        await self._jobs.synced.wait()
        while True:
            runs = runs_by_schedule(self._jobs)
            for key, item in list(self.cache.items.items()):
                await self._follow_one(key, item, runs.get(key, ()))
                await asyncio.sleep(0)  # thousands of Schedules must not delay the jobs
            self._quiet = {key: quiet for key, quiet in self._quiet.items() if key in self.cache.items}
            await asyncio.sleep(self._every_s)

    async def _follow_one(self, key: Key, item: Object, runs: Sequence[Key]) -> None:
        mark = item["metadata"].get("generation", 0)
        seen = (item["metadata"].get("resourceVersion"), *(self._jobs.items[run]["metadata"]["resourceVersion"] for run in runs))
        quiet = self._quiet.get(key)
        if self._guard.rests(key, mark) or (quiet is not None and quiet.holds(seen, self._clock())):
            return
        try:
            quiet_until = await self._look(key, item, runs)
            self._guard.well(key)
            self._quiet[key] = _Quiet(seen, self._clock(), quiet_until)
        except Conflict:
            return  # changed meanwhile: the next round retries it
        except Unreachable as error:
            log.warning("schedule %s/%s: %s", *key, error)
        except Exception as error:  # noqa: BLE001 - one broken schedule must not stop the others
            await self._tell(key, item, self._guard.failed(key, mark, error))

    async def _tell(self, key: Key, item: Object, reason: str) -> None:
        """Write into the Schedule's status why it cannot run."""
        stored = read(ScheduleStatus, item.get("status")).value.model_dump(mode="json", by_alias=True)
        conditions = with_stalled(stored.get("conditions"), reason, item["metadata"].get("generation", 0), self._clock())
        try:
            await self._store(key, item, {**stored, "message": reason, "conditions": conditions})
        except ApiError as error:
            log.warning("the status of schedule %s/%s could not be written: %s", *key, error)

    async def _look(self, key: Key, item: Object, runs: Sequence[Key]) -> datetime:
        """Do the step that is due. Returns the time until which nothing happens by itself."""
        if "deletionTimestamp" in item["metadata"]:
            return self._clock()
        schedule, status = _schedule_of(item), _status_of(item)
        goal, now = schedule.spec, self._clock()
        status = with_notices(status, self._webhooks.told(key))
        made = [run_of(self._jobs, each, goal) for each in runs if is_owned(self._jobs, each, item["metadata"]["uid"])]
        step = advance_schedule(key[1], goal, status, at(item["metadata"]["creationTimestamp"]), made, now, self._looks.of(key))
        await self._carry_out(key, item, schedule, step)
        return _quiet_until(goal, step.status, now)

    async def _carry_out(self, key: Key, item: Object, schedule: Schedule, step: ScheduleStep) -> None:
        for name in step.cancel:
            await self._connection.patch(JOBSPEC, key[0], name, {"spec": {"cancelled": True}})
        for start in step.start:
            await self.start(item, schedule, start, last_good(step.status.runs, written(start.due)))
        await self._store(key, item, step.status.model_dump(mode="json", by_alias=True))
        self._events.tell_of_runs(item, step.news)
        for name in step.delete:
            await self._connection.delete(JOBSPEC, key[0], name)
        self._looks.want(key, item, step.status.waiting)
        if schedule.spec.notify is not None:
            self._webhooks.send(key, schedule.spec.notify, step.status.runs)

    async def start(self, item: Object, schedule: Schedule, start: Start, against: LastGood | None) -> None:
        """Create the JobSpec of a run, unless it exists. `against`: the run whose rows it compares."""
        namespace = item["metadata"]["namespace"]
        try:
            self._jobs.put(await self._connection.create(JOBSPEC, namespace, jobspec_of(item, schedule.spec, start, against)))
        except AlreadyExists:
            log.info("%s/%s was started already", namespace, start.name)

    async def _store(self, key: Key, item: Object, status: Object) -> None:
        if _without_nulls(status) == _without_nulls(item.get("status") or {}):
            return
        try:
            self.cache.put(await self._connection.patch(SCHEDULE, *key, over(item, {"status": status}), subresource="status"))
        except Missing:
            return


def new_schedules(
    connection: Connection,
    again: Connect,
    jobs: JobSpecs,
    events: Events,
    settings: Settings,
    clock: Clock,
    count_webhook: Callable[[bool], None],
) -> Schedules:
    """The Schedules of a hub.

    `again` opens another connection to the hub's API server. `clock`: the present time. `count_webhook`: as in `Webhooks`.
    """

    async def reach(cluster: Cluster) -> Connection:
        return await connect(cluster, connection, again, settings.namespace, at_once=4)

    keys = StorageKeys(connection, MemberKeys(reach, Limits()), "", {})
    webhooks = Webhooks(connection, settings.webhook_hosts, count=count_webhook)
    looks, shares = DataLooks(keys, NameNodes(settings.name_nodes)), Shares(settings.schedule_bytes)
    return Schedules(connection, jobs, events, looks, webhooks, shares=shares, clock=clock)


@dataclass(frozen=True)
class _Quiet:
    """A Schedule without an event from `since` to `until`, as long as it and its jobs stay at the versions `seen`."""

    seen: tuple[str | None, ...]
    since: datetime
    until: datetime

    def holds(self, seen: tuple[str | None, ...], now: datetime) -> bool:
        return self.seen == seen and self.since <= now < self.until


def _quiet_until(goal: ScheduleGoal, status: ScheduleStatus, now: datetime) -> datetime:
    wanted = goal.run_now is not None and goal.run_now != status.run_now
    backfilled = goal.backfill is not None and not (status.backfill is not None and status.backfill.done)
    told = any(run.notice == "due" for run in status.runs)
    if status.waiting or told or wanted or backfilled:
        return now
    return at(status.next_run) if status.next_run else now + timedelta(minutes=1)


def _schedule_of(item: Object) -> Schedule:
    """The Schedule in an object. Raises Unreadable, also for wrong expressions in its texts."""
    for part, why in unreadable(item).items():
        raise Unreadable(f"{part}: {why}")
    try:
        schedule = Schedule.model_validate({"metadata": item["metadata"], "spec": _readable(item["spec"])}, context=STORED)
    except ValidationError as error:
        raise Unreadable(f"it cannot be read: {error.errors()[0]['msg']}") from None
    texts = {"template": item["spec"].get("template"), "waitFor": item["spec"].get("waitFor")}
    for path, reason in expression_problems(texts):
        raise Unreadable(f"spec.{'.'.join(map(str, path))[:200]}: {reason}")
    return schedule


def _status_of(item: Object) -> ScheduleStatus:
    status = read(ScheduleStatus, item.get("status")).value
    if any(each.type == STALLED for each in status.conditions):  # it was stalled, and can be read again
        rest = [each for each in status.conditions if each.type != STALLED]
        status = status.model_copy(update={"conditions": rest, "message": ""})
    return status


def _without_nulls(value: Any) -> Any:
    """A status as an API server keeps it."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _readable(spec: Object) -> Object:
    """A Schedule's spec, with a stub for a job that names a ModelTemplate: each run is checked later, with the template of its own time."""
    template = spec.get("template")
    inner = template.get("spec") if isinstance(template, dict) else None
    return {**spec, "template": {**template, "spec": stub_spec(inner)}} if isinstance(template, dict) and template_of(inner) else spec
