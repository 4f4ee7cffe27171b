"""One member as the hub holds it: a connection, caches of what matters there, and whether it can be reached."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pydantic import ValidationError

from tuneyard.api import Attempt, AttemptReport, Cluster, NodeInventory
from tuneyard_operators.hub.clock import seconds_since
from tuneyard_operators.hub.inventory import hostname, inventory, is_ready, kept_of_foreign_pod, kept_of_node
from tuneyard_operators.hub.lanes import Lane
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.kube import (
    ATTEMPT_REPORT,
    NODE,
    POD,
    RAYJOB,
    SECRET,
    ApiError,
    Cache,
    Connection,
    Forbidden,
    Key,
    Missing,
    Unreachable,
    from_kubeconfig_text,
)
from tuneyard_operators.rendering import ATTEMPT, JOB, JOB_LABELS, NAMESPACE_LABEL, TASK, UID, attempt_name

log = logging.getLogger(__name__)
Object = dict[str, Any]
OnJob = Callable[[Key], None]
Connect = Callable[..., Awaitable[Connection]]
_PING_S = 5.0
_ACTIONS_AT_ONCE = 16
_OWN_LOOK_S = 10.0


def away_for_s(heartbeat: str | None, now: datetime, failing_since: float | None) -> float:
    """For how long a member has been away: since its last heartbeat, which outlives restarts of the hub.

    But a hub that was itself away for an hour has heard no heartbeat either: until it has tried in vain for a while (`failing_since`,
    by the monotonic clock), nothing counts but its own trying.
    """
    tried_s = time.monotonic() - failing_since if failing_since is not None else 0.0
    if heartbeat is None or tried_s < _OWN_LOOK_S:
        return tried_s
    return seconds_since(heartbeat, now)


@dataclass(frozen=True)
class Hears:
    """Who is told what: `on_job` of every job something has changed for; `on_room` of free GPUs; `on_listed` once, when all of a member
    has been seen: jobs that were looked at before found it unknown."""

    on_job: OnJob
    on_room: Callable[[], None]
    on_listed: Callable[[str], None]


class Member:
    """Follows one member until `close`."""

    def __init__(self, cluster: Cluster, connection: Connection, *, last_heartbeat: str | None, hears: Hears) -> None:
        self.cluster = cluster
        self.connection = connection
        self.lane = Lane(_ACTIONS_AT_ONCE)
        self.refusals: dict[str, str] = {}
        """Why attempts were not taken, by name, until their statuses say so."""
        self.heartbeat = last_heartbeat
        self.error = ""
        self.refused = False
        """Whether the member refuses the hub's credentials."""
        self._began = time.monotonic()
        self._failing_since: float | None = None
        self._on_job = hears.on_job
        self._on_room = hears.on_room
        self._on_listed = hears.on_listed
        self._spoken: dict[str, float] = {}
        self._failed_pods: dict[str, dict[str, Object]] = defaultdict(dict)
        self._pods: dict[str, set[Key]] = defaultdict(set)
        self._unready: set[str] = set()
        self._inventory: list[NodeInventory] | None = None
        self._inventory_of: Cluster | None = None
        self._read: dict[str, tuple[str, AttemptReport]] = {}
        namespace = cluster.spec.namespace
        here = partial(Cache, connection, namespace=namespace, labels=JOB_LABELS)
        self.rayjobs = here(RAYJOB, keep=_kept_of_rayjob, on_change=self._changed)
        self.reports = Cache(connection, ATTEMPT_REPORT, namespace=namespace, on_change=self._reported)
        self.secrets = here(SECRET, keep=_metadata_only, on_change=self._changed)
        self.pods = here(POD, on_change=self._pod_changed)
        self.nodes = Cache(connection, NODE, on_change=self._node_changed, keep=kept_of_node)
        self.foreign = Cache(connection, POD, labels=f"!{JOB}", on_change=self._room_changed, keep=kept_of_foreign_pod)
        self._caches = (self.rayjobs, self.reports, self.secrets, self.pods, self.nodes, self.foreign)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def name(self) -> str:
        return self.cluster.metadata.name

    def start(self) -> None:
        self._tasks = [asyncio.create_task(cache.run(), name=f"{self.name}-{cache.kind.plural}") for cache in self._caches]
        self._tasks.append(asyncio.create_task(self._ping(), name=f"{self.name}-ping"))
        self._tasks.append(asyncio.create_task(self._tell_when_listed(), name=f"{self.name}-listed"))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.lane.close()
        await self.connection.close()

    @property
    def listed(self) -> bool:
        """Whether all of the member has been seen once: before that, what is missing may only not have been heard of."""
        return all(cache.synced.is_set() for cache in self._caches)

    @property
    def reachable(self) -> bool:
        return not self.error and self.listed

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._began

    def inventory(self) -> list[NodeInventory]:
        """Its nodes, counted anew where something has changed. Shared: not to be changed."""
        if self._inventory is None or self._inventory_of is not self.cluster:
            self._inventory = inventory(self.cluster, self.nodes.items.values(), self.foreign.items.values())
            self._inventory_of = self.cluster
        return self._inventory

    def observe(self, attempt: Attempt, now: datetime) -> Observed:
        """What is on the member of one attempt."""
        if not self.reachable:
            away_s = away_for_s(self.heartbeat, now, self._failing_since)
            return Observed(known=False, unreachable_s=away_s, why_unreachable=self.error or "not all of it has been listed")
        key = (self.cluster.spec.namespace, attempt.name)
        return Observed(
            rayjob=self.rayjobs.items.get(key),
            report=self._report(attempt.name),
            secret=key in self.secrets.items,
            pods=[self.pods.items[pod] for pod in sorted(self._pods.get(attempt.name, ()))],
            remains=[pod for name, pod in self._failed_pods.get(attempt.name, {}).items() if (key[0], name) not in self.pods.items],
            silent_s=self._silent_s(attempt.name),
            unready_nodes=frozenset(self._unready),
            refused=self.refusals.get(attempt.name, ""),
            underway=attempt.name in self.lane,
        )

    def has(self, attempt: str) -> bool:
        """Whether the attempt's RayJob is there, as far as the member has told."""
        return (self.cluster.spec.namespace, attempt) in self.rayjobs.items

    def forget(self, attempt: str) -> None:
        for known in (self._failed_pods, self._spoken, self._read, self.refusals):
            known.pop(attempt, None)

    def leftovers(self) -> dict[str, Key]:
        """Attempt name -> job of every RayJob, Secret and report here: what a sweep compares with the hub's own record."""
        found: dict[str, Key] = {}
        for cache in (self.rayjobs, self.secrets, self.reports):
            for key, item in cache.items.items():
                job = _job_of(item)
                if job is not None:
                    found[key[1]] = job
        return found

    async def remove(self, attempt: str) -> bool:
        """Delete all of an attempt that is known to be here; the RayJob last, so that a removal cut short is taken up again.

        False where something stays for a while: it has finalizers, or pods.
        """
        namespace = self.cluster.spec.namespace
        key = (namespace, attempt)
        gone: list[Cache] = []
        for cache in (self.reports, self.secrets, self.rayjobs):
            item = cache.items.get(key)
            going = item is None or item["metadata"].get("deletionTimestamp")
            if not going and await self.connection.delete(cache.kind, namespace, attempt):
                gone.append(cache)
        for cache in gone:  # at once, so that the job is looked at once
            cache.drop(key)
        return key not in self.rayjobs.items and attempt not in self._pods

    def _report(self, attempt: str) -> AttemptReport | None:
        """What an attempt says, read once per version. Shared: not to be changed."""
        item = self.reports.items.get((self.cluster.spec.namespace, attempt))
        if item is None:
            return None
        version = item["metadata"]["resourceVersion"]
        known = self._read.get(attempt)
        if known is None or known[0] != version:
            self._read[attempt] = known = (version, _report(item))
        return known[1]

    def _silent_s(self, attempt: str) -> float:
        loop = asyncio.get_running_loop()
        return loop.time() - self._spoken.setdefault(attempt, loop.time())

    def _changed(self, _key: Key, old: Object | None, new: Object | None) -> None:
        job = _job_of(new or old or {})
        if job is not None:
            self._on_job(job)

    def _reported(self, key: Key, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self._spoken[key[1]] = asyncio.get_running_loop().time()
        job = _job_of(new or old or {}) or _job_of(self.rayjobs.items.get(key) or {})
        if job is not None:
            self._on_job(job)

    def _pod_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        attempt = _attempt_of(new or old or {})
        if attempt is None:
            return
        if new is None:
            self._pods[attempt].discard(key)
            if not self._pods[attempt]:
                del self._pods[attempt]
        else:
            self._pods[attempt].add(key)
            if _has_failed(new):
                self._failed_pods[attempt][key[1]] = new
        self._changed(key, old, new)

    def _room_changed(self, _key: Key, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or _without_version(old) != _without_version(new):
            self._inventory = None
            self._on_room()

    def _node_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        self._room_changed(key, old, new)
        if old is not None:
            self._unready.discard(hostname(old))
        if new is not None and not is_ready(new):
            self._unready.add(hostname(new))
        if old is not None and new is not None and is_ready(old) != is_ready(new):
            for job in {_job_of(pod) for pod in self.pods.items.values() if pod["spec"].get("nodeName") == new["metadata"]["name"]}:
                if job is not None:
                    self._on_job(job)

    async def _tell_when_listed(self) -> None:
        for cache in self._caches:
            await cache.synced.wait()
        self._on_room()
        self._on_listed(self.name)

    async def _ping(self) -> None:
        """A watch that hears nothing cannot tell a quiet server from a dead one: ask."""
        while True:
            before, self.refused = self.error, False
            try:
                await asyncio.wait_for(self.connection.raw("/readyz"), _PING_S * 2)
                # A server that answers is believed only once every cache has heard from it again: until then they show the past.
                self.error = next((_lack(cache) for cache in self._caches if cache.error is not None), "")
            except TimeoutError:
                self.error = f"{self.connection.server} does not answer: timed out"
            except Forbidden as error:
                self.refused = True
                self.error = f"its credentials are refused ({error.message}); put fresh ones into the Secret of Cluster {self.name}"
            except Unreachable as error:
                self.error = error.message
            except ApiError as error:
                self.error = str(error)
            if not self.error:
                self.heartbeat = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            if not self.error:
                self._failing_since = None
            elif self._failing_since is None:
                self._failing_since = time.monotonic()
            if bool(before) != bool(self.error):
                log.warning("member %s %s", self.name, f"cannot be used: {self.error}" if self.error else "can be reached")
                self._on_room()
                for job in set(self.leftovers().values()):
                    self._on_job(job)
            await asyncio.sleep(_PING_S)


async def connect(cluster: Cluster, hub: Connection, own: Connect, namespace: str, **options: Any) -> Connection:
    """Connection to a member by the Secret that its Cluster names; one that names none is the hub itself (`own` connects to it again).

    Raises ApiError where there is no such Secret, or it cannot be used.
    """
    reference = cluster.spec.endpoint.kubeconfig_secret
    if reference is None:
        if cluster.spec.endpoint.server is not None:
            raise Unreachable(0, "the Cluster names a server and no kubeconfigSecret; name neither for the hub's own cluster")
        return await own(**options)
    try:
        secret = await hub.get(SECRET, namespace, reference.name)
    except Missing as error:
        raise Unreachable(404, f"the Secret {namespace}/{reference.name} with its kubeconfig does not exist") from error
    data: Mapping[str, str] = secret.get("data") or {}
    if reference.key not in data:
        raise Unreachable(0, f"the Secret {namespace}/{reference.name} has no key {reference.key}")
    return await from_kubeconfig_text(base64.b64decode(data[reference.key]).decode(errors="replace"), **options)


def _lack(cache: Cache) -> str:
    """Why the hub cannot do with this member, in words for whoever runs it."""
    if isinstance(cache.error, Missing):
        return f"it knows no {cache.kind.plural} ({cache.kind.api_version}): install KubeRay and the chart tuneyard-member there"
    if isinstance(cache.error, Forbidden):
        return f"its credentials do not let the hub list {cache.kind.plural}: {cache.error.message}"
    return f"its {cache.kind.plural} cannot be followed: {cache.error}"


def _report(item: Object) -> AttemptReport:
    """What an attempt says; an empty report where it talks nonsense, which is not believed."""
    try:
        return AttemptReport.model_validate({key: item[key] for key in ("metadata", "spec", "status") if item.get(key) is not None})
    except ValidationError as error:
        log.warning("the report %s cannot be read: %s", item["metadata"]["name"], error.errors()[0]["msg"])
        return AttemptReport.model_validate({"metadata": item["metadata"]})


def _job_of(item: Mapping[str, Any]) -> Key | None:
    labels = item.get("metadata", {}).get("labels") or {}
    return (labels.get(NAMESPACE_LABEL, ""), labels[JOB]) if JOB in labels else None


def _attempt_of(pod: Mapping[str, Any]) -> str | None:
    labels = pod.get("metadata", {}).get("labels") or {}
    try:
        return attempt_name(labels[JOB], labels[UID], labels[TASK], int(labels[ATTEMPT]))
    except (KeyError, ValueError):
        return None


def _has_failed(pod: Mapping[str, Any]) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    ended = any((status.get("state", {}).get("terminated") or {}).get("exitCode", 0) for status in statuses)
    put_out = any(c["type"] == "DisruptionTarget" for c in pod.get("status", {}).get("conditions") or [])
    return ended or put_out or pod.get("status", {}).get("phase") == "Failed"


def _kept_of_rayjob(item: Object) -> Object:
    """A RayJob without its pod templates."""
    kept_status = {key: value for key, value in (item.get("status") or {}).items() if key != "rayClusterStatus"}
    return {"metadata": {**item["metadata"], "managedFields": None}, "status": kept_status}


def _metadata_only(item: Object) -> Object:
    return {"metadata": {key: item["metadata"].get(key) for key in ("name", "namespace", "labels", "resourceVersion")}}


def _without_version(item: Object) -> Object:
    return {**item, "metadata": {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}}
