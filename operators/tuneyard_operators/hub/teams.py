"""Teams on the hub: their quota for the scheduler, and what they have used, counted up to a moment that stands in their status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from tuneyard.api import Attempt, JobStatus
from tuneyard.api.team import TeamStatus
from tuneyard.api.wire import read
from tuneyard.federation import held_hours, read_team, same_month
from tuneyard_operators.hub.clock import at, written
from tuneyard_operators.hub.guard import Guard, with_stalled
from tuneyard_operators.hub.placing import Placing
from tuneyard_operators.kube import TEAM, ApiError, Cache, Connection, Key

log = logging.getLogger(__name__)
_EVERY_S = 30.0
Object = dict[str, Any]
TeamJobs = Callable[[], Iterable[tuple[str, JobStatus]]]
"""Team and status of every job."""


class Teams:
    """Follows the Team objects; `jobs` lists what is to be counted."""

    def __init__(self, connection: Connection, placing: Placing, jobs: TeamJobs, on_change: Callable[[], None]) -> None:
        self._connection = connection
        self._placing = placing
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
        self._placing.set_teams(read_team(item, now)[0] for item in self.cache.items.values())
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
        """Bring the usage of all teams up to now, where it has changed."""
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
        account = self._placing.scheduler.teams[name]
        after.in_use = {sku: gpus for sku, gpus in sorted(account.holds.items()) if gpus}
        borrowed = {sku: self._placing.scheduler.teams.borrowed(name, sku) for sku in after.in_use}
        after.borrowed = {sku: gpus for sku, gpus in borrowed.items() if gpus}
        used = self._placing.scheduler.teams.usage(name, now.timestamp())
        after.used_gpu_seconds = {sku: round(seconds) for sku, seconds in sorted(used.items()) if seconds >= 1}
        status = after.model_dump(mode="json", by_alias=True)
        stored = [each.model_dump(mode="json", by_alias=True) for each in before.conditions]
        status["conditions"] = with_stalled(stored, read_team(item, now)[1], item["metadata"].get("generation", 0), now)
        idle = after == before.model_copy(update={"usage_at": after.usage_at}) and before.usage_at is not None and not after.in_use
        if idle and status["conditions"] == (stored or []):
            return  # nothing runs and nothing fades: the moment alone is worth no write
        await self._connection.patch(TEAM, None, name, {"status": status}, subresource="status")


def counted(before: TeamStatus, attempts: Iterable[Attempt], now: datetime) -> TeamStatus:
    """A team's usage with what its attempts have held since it was last counted. A new month begins at nothing."""
    after = before.model_copy(deep=True)
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    since = at(before.usage_at) if before.usage_at else None
    if since is None or not same_month(before.usage_at, now):
        after.gpu_hours_used, after.cost = 0.0, 0.0
        since = month if since is not None else None
    for attempt in attempts:
        hours = held_hours(attempt, since or month, now)
        if hours and attempt.placement is not None:
            after.gpu_hours_used += hours * attempt.placement.gpus
            after.cost += hours * attempt.placement.gpus * attempt.placement.price_per_gpu_hour
    after.gpu_hours_used, after.cost = round(after.gpu_hours_used, 4), round(after.cost, 4)
    after.usage_at = written(now)
    return after


def usage_of(attempts: Iterable[Attempt], now: datetime) -> tuple[float, float]:
    """GPU-hours and cost of a job so far."""
    gpu_hours = cost = 0.0
    for attempt in attempts:
        if attempt.placement is not None and attempt.placed_at is not None:
            held = held_hours(attempt, at(attempt.placed_at), now) * attempt.placement.gpus
            gpu_hours += held
            cost += held * attempt.placement.price_per_gpu_hour
    return round(gpu_hours, 4), round(cost, 4)


def _status(item: Object) -> TeamStatus:
    return read(TeamStatus, item.get("status")).value
