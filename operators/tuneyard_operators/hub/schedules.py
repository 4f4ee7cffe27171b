"""Runs the Schedules of the hub. Every few seconds it creates the JobSpecs of due runs; a Schedule owns the JobSpecs of its runs."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from tuneyard.api import STORED, Schedule
from tuneyard.api.schedule import ScheduleStatus
from tuneyard.api.templates import template_of
from tuneyard.api.wire import read
from tuneyard.kubernetes import over
from tuneyard_operators.hub.clock import at
from tuneyard_operators.hub.cron import Run, advance_schedule, run_name, run_spec
from tuneyard_operators.hub.goals import stub_spec
from tuneyard_operators.hub.guard import Guard, Unreadable, with_stalled
from tuneyard_operators.hub.jobspecs import JobSpecs
from tuneyard_operators.kube import JOBSPEC, SCHEDULE, AlreadyExists, ApiError, Cache, Conflict, Connection, Key, Missing, Unreachable

log = logging.getLogger(__name__)
LABEL = "tuneyard.dev/schedule"
_EVERY_S = 2.0
Object = dict[str, Any]


class Schedules:
    def __init__(self, connection: Connection, jobs: JobSpecs) -> None:
        self._connection = connection
        self._jobs = jobs
        self._schedules = Cache(connection, SCHEDULE)
        self._guard: Guard[Key] = Guard("schedule")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._schedules.run())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        await self._schedules.synced.wait()
        await self._jobs.synced.wait()
        while True:
            for key, item in list(self._schedules.items.items()):
                mark = item["metadata"].get("generation", 0)
                if self._guard.rests(key, mark):
                    continue
                try:
                    await self._look(key, item)
                    self._guard.well(key)
                except Conflict:
                    continue  # changed meanwhile: the next round retries it
                except Unreachable as error:
                    log.warning("schedule %s/%s: %s", *key, error)
                except Exception as error:  # noqa: BLE001 - one broken schedule must not stop the others
                    await self._tell(key, item, self._guard.failed(key, mark, error))
            await asyncio.sleep(_EVERY_S)

    async def _tell(self, key: Key, item: Object, reason: str) -> None:
        """Write into the Schedule's status why it cannot run."""
        stored = read(ScheduleStatus, item.get("status")).value.model_dump(mode="json", by_alias=True)
        conditions = with_stalled(stored.get("conditions"), reason, item["metadata"].get("generation", 0), datetime.now(UTC))
        try:
            await self._store(key, item, {**stored, "message": reason, "conditions": conditions})
        except ApiError as error:
            log.warning("the status of schedule %s/%s could not be written: %s", *key, error)

    async def _look(self, key: Key, item: Object) -> None:
        if "deletionTimestamp" in item["metadata"]:
            return
        try:
            schedule = Schedule.model_validate({"metadata": item["metadata"], "spec": _readable(item["spec"])}, context=STORED)
        except ValidationError as error:
            raise Unreadable(f"it cannot be read: {error.errors()[0]['msg']}") from None
        created = at(item["metadata"]["creationTimestamp"])
        status = read(ScheduleStatus, item.get("status")).value
        if status.conditions:  # it was stalled, and can be read again
            status = status.model_copy(update={"conditions": [], "message": ""})
        step = advance_schedule(key[1], schedule.spec, status, created, self._runs(key), datetime.now(UTC))
        for name in step.cancel:
            await self._connection.patch(JOBSPEC, key[0], name, {"spec": {"cancelled": True}})
        if step.start is not None:
            await self.start(key, item, step.start)
        # The status is written after the job is created. If the hub is killed in between, the next one finds the job under the same name.
        await self._store(key, item, step.status.model_dump(mode="json", by_alias=True))
        for name in step.delete:
            await self._connection.delete(JOBSPEC, key[0], name)

    def _runs(self, key: Key) -> list[Run]:
        found = []
        for (namespace, name), job in self._jobs.items.items():
            if namespace == key[0] and job["metadata"].get("labels", {}).get(LABEL) == key[1]:
                phase = self._jobs.status((namespace, name)).phase
                found.append(Run(name, at(job["metadata"]["creationTimestamp"]), phase))
        return found

    async def start(self, key: Key, item: Object, moment: datetime) -> None:
        """Create the job of the run at `moment`, unless it exists."""
        template = item["spec"]["template"]
        owner = {
            "apiVersion": SCHEDULE.api_version,
            "kind": SCHEDULE.name,
            "name": key[1],
            "uid": item["metadata"]["uid"],
            "controller": True,
        }
        metadata = {
            "name": run_name(key[1], moment),
            "namespace": key[0],
            "labels": {**template.get("labels", {}), LABEL: key[1]},
            "ownerReferences": [owner],
        }
        spec = run_spec(template["spec"], run_name(key[1], moment))
        try:
            self._jobs.put(await self._connection.create(JOBSPEC, key[0], {"metadata": metadata, "spec": spec}))
        except AlreadyExists:
            log.info("%s/%s was started already", key[0], metadata["name"])

    async def _store(self, key: Key, item: Object, status: Object) -> None:
        if status == (item.get("status") or {}):
            return
        try:
            self._schedules.put(await self._connection.patch(SCHEDULE, *key, over(item, {"status": status}), subresource="status"))
        except Missing:
            return


def _readable(spec: Object) -> Object:
    """A Schedule's spec, with a stub for a job that names a ModelTemplate: each run is checked later, with the template of its own time."""
    template = spec.get("template")
    inner = template.get("spec") if isinstance(template, dict) else None
    return {**spec, "template": {**template, "spec": stub_spec(inner)}} if isinstance(template, dict) and template_of(inner) else spec
