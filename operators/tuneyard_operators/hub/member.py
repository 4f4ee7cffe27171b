"""The hub's view of one member: a connection, caches of its objects, a record per attempt, its capacity, and its heartbeat."""

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

    `on_job`: an object of a job has changed; `on_room`: the number of free GPUs may have changed; `on_listed`: all objects of the member
    have been listed for the first time, so that jobs reconciled before must be reconciled again.
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
        """Whether all objects of the member have been listed once."""
        return self.caches.listed

    @property
    def reachable(self) -> bool:
        return not self.heartbeat.error and self.listed

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def unreadable(self) -> str:
        """How many objects of each kind the hub cannot read in full, with one of the reasons; empty if it reads all."""
        broken = [cache for cache in self.caches.followed if cache.unreadable]
        return "; ".join(f"{len(cache.unreadable)} {cache.kind.plural} cannot be read ({_example(cache)})" for cache in broken)

    def inventory(self) -> list[NodeInventory]:
        """The member's nodes, recounted only after a change. Shared: callers must not change them."""
        return self.capacity.count(self.cluster).nodes

    # --- attempts

    def observe(self, attempt: Attempt, now: datetime) -> Observed:
        """The observed objects of one attempt."""
        if not self.reachable:
            why = self.heartbeat.error or "its objects have not all been listed yet"
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
        """Record why the member refuses an attempt."""
        self.attempts.recall(attempt).refusal = why

    def has(self, attempt: str) -> bool:
        """Whether the attempt's RayJob is in the cache."""
        return (self.cluster.spec.namespace, attempt) in self.caches.rayjobs.items

    def is_clean_of(self, attempt: str) -> bool:
        """Whether the attempt has no objects, no pods and no action under way here."""
        key = (self.cluster.spec.namespace, attempt)
        there = any(key in cache.items for cache in (self.caches.rayjobs, self.caches.reports, self.caches.secrets))
        return not there and not self.attempts.has_pods(attempt) and attempt not in self.lane

    def leftovers(self) -> dict[str, Key]:
        """Attempts with objects or a record here, each with the key of its job. The sweep compares them with the JobSpecs."""
        return dict(self.attempts.jobs()) | dict(self.caches.owners())

    async def remove(self, attempt: str, *, only_machines: bool = False) -> bool:
        """Delete all known objects of an attempt, or its RayJob alone. False if its RayJob or pods remain for a while."""
        namespace = self.cluster.spec.namespace
        key = (namespace, attempt)
        gone: list[Cache] = []
        for cache in (self.caches.rayjobs,) if only_machines else self.caches.removable:
            item = cache.items.get(key)
            going = item is None or item["metadata"].get("deletionTimestamp")
            if not going and await self.connection.delete(cache.kind, namespace, attempt):
                gone.append(cache)
        for cache in gone:  # together, so that the job is reconciled once
            cache.drop(key)
        return not self.has(attempt) and not self.attempts.has_pods(attempt)

    async def remove_orphan(self, attempt: str) -> None:
        """`remove` an attempt without a JobSpec, and forget it once removed. Raises nothing: the caller tries again later in any case."""
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
        """The member has become usable or unusable: trigger a cycle, and reconcile each of its jobs."""
        self.attempts.hear_again(asyncio.get_running_loop().time())
        self._hears.on_room()
        for job in set(self.leftovers().values()):
            self._hears.on_job(job)

    async def _tell_when_listed(self) -> None:
        for cache in self.caches.needed:
            await cache.synced.wait()
        while not self.listed:  # NetworkPolicies count as listed if the hub may not list them
            await asyncio.sleep(_LISTED_AGAIN_S)
        self._hears.on_room()
        self._hears.on_listed(self.name)


def _example(cache: Cache) -> str:
    (_, name), why = next(iter(cache.unreadable.items()))
    return f"{name}: {why}"
