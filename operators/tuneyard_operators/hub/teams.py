"""Follows the Teams of the hub: gives their quota to the scheduler, and counts their usage into their status, up to a recorded time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from tuneyard.api import Attempt, JobStatus
from tuneyard.api.team import TeamStatus
from tuneyard.api.wire import read
from tuneyard.federation import read_team
from tuneyard_operators.hub.guard import Guard, with_stalled
from tuneyard_operators.hub.placements import Placements
from tuneyard_operators.hub.usage import counted
from tuneyard_operators.kube import TEAM, ApiError, Cache, Connection, Key

log = logging.getLogger(__name__)
_EVERY_S = 30.0
Object = dict[str, Any]
TeamJobs = Callable[[], Iterable[tuple[str, JobStatus]]]
"""Team and status of every job."""


class Teams:
    """Follows the Team objects. `jobs` lists the jobs whose usage counts."""

    def __init__(self, connection: Connection, placements: Placements, jobs: TeamJobs, on_change: Callable[[], None]) -> None:
        self._connection = connection
        self._placements = placements
        self._jobs = jobs
        self._on_change = on_change
        self._guard: Guard[str] = Guard("team")
        self.cache = Cache(connection, TEAM, on_change=self._changed)

    @property
    def synced(self) -> bool:
        return self.cache.synced.is_set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.cache.run())
            group.create_task(self._count_forever())

    def _changed(self, _key: Key, _old: Object | None, _new: Object | None) -> None:
        now = datetime.now(UTC)
        self._placements.set_teams(read_team(item, now)[0] for item in self.cache.items.values())
        self._on_change()

    async def _count_forever(self) -> None:
        await self.cache.synced.wait()
        while True:
            await asyncio.sleep(_EVERY_S)
            try:
                if self.cache.items:
                    await self._count(datetime.now(UTC))
            except Exception:
                log.exception("the usage of teams cannot be counted")

    async def _count(self, now: datetime) -> None:
        """Update the usage of all teams up to `now`."""
        attempts: dict[str, list[Attempt]] = {}
        for team, status in self._jobs():
            attempts.setdefault(team, []).extend(status.attempts)
        for (_, name), item in list(self.cache.items.items()):
            mark = item["metadata"].get("generation", 0)
            if self._guard.rests(name, mark):
                continue
            try:
                await self._count_one(name, item, attempts.get(name, ()), now)
                self._guard.well(name)
            except ApiError as error:
                log.warning("the status of Team %s could not be written: %s", name, error)
            except Exception as error:  # noqa: BLE001 - one broken team must not stop the others
                self._guard.failed(name, mark, error)

    async def _count_one(self, name: str, item: Object, attempts: Iterable[Attempt], now: datetime) -> None:
        before = _status(item)
        after = counted(before, attempts, now)
        account = self._placements.scheduler.teams[name]
        after.in_use = {sku: gpus for sku, gpus in sorted(account.holds.items()) if gpus}
        borrowed = {sku: self._placements.scheduler.teams.borrowed(name, sku) for sku in after.in_use}
        after.borrowed = {sku: gpus for sku, gpus in borrowed.items() if gpus}
        used = self._placements.scheduler.teams.usage(name, now.timestamp())
        after.used_gpu_seconds = {sku: round(seconds) for sku, seconds in sorted(used.items()) if seconds >= 1}
        status = after.model_dump(mode="json", by_alias=True)
        stored = [each.model_dump(mode="json", by_alias=True) for each in before.conditions]
        status["conditions"] = with_stalled(stored, read_team(item, now)[1], item["metadata"].get("generation", 0), now)
        idle = after == before.model_copy(update={"usage_at": after.usage_at}) and before.usage_at is not None and not after.in_use
        if idle and status["conditions"] == (stored or []):
            return  # nothing runs and no usage decays: a new time alone is not worth a write
        await self._connection.patch(TEAM, None, name, {"status": status}, subresource="status")


def _status(item: Object) -> TeamStatus:
    return read(TeamStatus, item.get("status")).value
