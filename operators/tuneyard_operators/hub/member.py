"""One member: a connection, caches of what matters there, a record per attempt, and whether the member can be reached."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tuneyard.api import Attempt, Cluster, NodeInventory
from tuneyard_operators.hub.attempt_records import AttemptRecords, job_of
from tuneyard_operators.hub.capacity import Capacity
from tuneyard_operators.hub.heartbeat import Heartbeat
from tuneyard_operators.hub.inventory import is_ready
from tuneyard_operators.hub.lanes import Lane
from tuneyard_operators.hub.member_caches import MemberCaches
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.kube import ApiError, Cache, Connection, Key

log = logging.getLogger(__name__)
Object = dict[str, Any]
_ACTIONS_AT_ONCE = 16
_LISTED_AGAIN_S = 0.1


@dataclass(frozen=True)
class Hears:
    """Callbacks of a member.

    `on_job`: something has changed for a job; `on_room`: GPUs may be free; `on_listed`: all of the member has been seen for the first time,
    and jobs that were looked at before found it unknown.
    """

    on_job: Callable[[Key], None]
    on_room: Callable[[], None]
    on_listed: Callable[[str], None]


class Member:
    """Follows one member until `close`."""

    def __init__(self, cluster: Cluster, connection: Connection, *, last_heartbeat: str | None, hears: Hears) -> None:
        self.cluster = cluster
        self.connection = connection
        self.caches = MemberCaches.of(
            connection,
            cluster.spec.namespace,
            on_object=self._changed,
            on_report=self._reported,
            on_pod=self._pod_changed,
            on_node=self._node_changed,
            on_foreign=self._room_changed,
        )
        self.attempts = AttemptRecords()
        self.capacity = Capacity(self.caches.nodes.items.values, self.caches.foreign.items.values)
        self.heartbeat = Heartbeat(self.name, connection, self.caches.needed, last_heartbeat, on_change=self._tell_all)
        self.lane = Lane(_ACTIONS_AT_ONCE)
        self._hears = hears
        self._began_s = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def name(self) -> str:
        return self.cluster.metadata.name

    def start(self) -> None:
        self._tasks = [asyncio.create_task(cache.run(), name=f"{self.name}-{cache.kind.plural}") for cache in self.caches.followed]
        self._tasks.append(asyncio.create_task(self.heartbeat.run(), name=f"{self.name}-heartbeat"))
        self._tasks.append(asyncio.create_task(self._tell_when_listed(), name=f"{self.name}-listed"))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.lane.close()
        await self.connection.close()

    @property
    def listed(self) -> bool:
        """Whether all of the member has been seen once."""
        return self.caches.listed

    @property
    def reachable(self) -> bool:
        return not self.heartbeat.error and self.listed

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._began_s

    def inventory(self) -> list[NodeInventory]:
        """Its nodes, counted anew only after a change. Shared: not to be changed."""
        return self.capacity.count(self.cluster).nodes

    # --- attempts

    def observe(self, attempt: Attempt, now: datetime) -> Observed:
        """What the member has of one attempt."""
        if not self.reachable:
            why = self.heartbeat.error or "not all of it has been listed"
            return Observed(known=False, unreachable_s=self.heartbeat.away_s(now), why_unreachable=why)
        namespace, caches = self.cluster.spec.namespace, self.caches
        key = (namespace, attempt.name)
        record = self.attempts.recall(attempt.name)
        report, unreadable = self.attempts.report(attempt.name, caches.reports.items.get(key))
        return Observed(
            rayjob=caches.rayjobs.items.get(key),
            report=report,
            unreadable=unreadable,
            secret=key in caches.secrets.items,
            policy=caches.isolates and key in caches.policies.items,
            pods=[caches.pods.items[pod] for pod in sorted(record.pods)],
            remains=[pod for name, pod in record.remains.items() if (namespace, name) not in caches.pods.items],
            silent_s=self.attempts.silent_s(attempt.name, asyncio.get_running_loop().time()),
            unready_nodes=frozenset(self.capacity.unready),
            refused=record.refusal,
            underway=attempt.name in self.lane,
        )

    def refuse(self, attempt: str, why: str) -> None:
        """The member does not take an attempt."""
        self.attempts.recall(attempt).refusal = why

    def has(self, attempt: str) -> bool:
        """Whether the attempt's RayJob is there, as far as the member has told."""
        return (self.cluster.spec.namespace, attempt) in self.caches.rayjobs.items

    def is_clean_of(self, attempt: str) -> bool:
        """Whether nothing of an attempt is there any more."""
        key = (self.cluster.spec.namespace, attempt)
        there = any(key in cache.items for cache in (self.caches.rayjobs, self.caches.reports, self.caches.secrets))
        return not there and not self.attempts.has_pods(attempt) and attempt not in self.lane

    def leftovers(self) -> dict[str, Key]:
        """Attempts that have objects or a record here, each with the key of its job: a sweep compares them with the JobSpecs."""
        return dict(self.attempts.jobs()) | dict(self.caches.owners())

    async def remove(self, attempt: str) -> bool:
        """Delete all known objects of an attempt. False if some stay for a while: they have finalizers, or pods."""
        namespace = self.cluster.spec.namespace
        key = (namespace, attempt)
        gone: list[Cache] = []
        for cache in self.caches.removable:
            item = cache.items.get(key)
            going = item is None or item["metadata"].get("deletionTimestamp")
            if not going and await self.connection.delete(cache.kind, namespace, attempt):
                gone.append(cache)
        for cache in gone:  # at once, so that the job is looked at once
            cache.drop(key)
        return not self.has(attempt) and not self.attempts.has_pods(attempt)

    async def remove_orphan(self, attempt: str) -> None:
        """`remove`, of an attempt that no JobSpec counts on. The caller looks again later in any case. Raises nothing."""
        try:
            if await self.remove(attempt):
                self.attempts.forget(attempt)
        except ApiError as error:
            log.warning("%s on %s could not be removed: %s", attempt, self.name, error)
        except Exception:
            log.exception("%s on %s could not be removed", attempt, self.name)

    # --- changes

    def _changed(self, _key: Key, old: Object | None, new: Object | None) -> None:
        job = job_of(new or old or {})
        if job is not None:
            self._hears.on_job(job)

    def _reported(self, key: Key, old: Object | None, new: Object | None) -> None:
        job = job_of(new or old or {}) or job_of(self.caches.rayjobs.items.get(key) or {})
        if new is not None:
            self.attempts.take_in_report(key[1], job, asyncio.get_running_loop().time())
        if job is not None:
            self._hears.on_job(job)

    def _pod_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        if self.attempts.take_in_pod(key, old, new):
            self._changed(key, old, new)

    def _room_changed(self, _key: Key, old: Object | None, new: Object | None) -> None:
        if self.capacity.take_in(old, new):
            self._hears.on_room()

    def _node_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        self._room_changed(key, old, new)
        self.capacity.take_in_node(old, new)
        if old is not None and new is not None and is_ready(old) != is_ready(new):
            for job in {job_of(pod) for pod in self.caches.pods.items.values() if pod["spec"].get("nodeName") == new["metadata"]["name"]}:
                if job is not None:
                    self._hears.on_job(job)

    def _tell_all(self) -> None:
        """The member comes or goes: there is other room, and each of its jobs has to be looked at."""
        self._hears.on_room()
        for job in set(self.leftovers().values()):
            self._hears.on_job(job)

    async def _tell_when_listed(self) -> None:
        for cache in self.caches.needed:
            await cache.synced.wait()
        while not self.listed:  # its policies are, or are known to be forbidden
            await asyncio.sleep(_LISTED_AGAIN_S)
        self._hears.on_room()
        self._hears.on_listed(self.name)
