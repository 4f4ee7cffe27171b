"""One member as the hub holds it: a connection, caches of what matters there, and whether it can be reached."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from tuneyard.api import Attempt, AttemptReport, AttemptState, Cluster, Metadata, NodeInventory
from tuneyard.api.attempt_report import AttemptGoal
from tuneyard.api.wire import read
from tuneyard_operators.hub.guard import reason_of
from tuneyard_operators.hub.heartbeat import Heartbeat
from tuneyard_operators.hub.inventory import hostname, inventory, is_ready, kept_of_foreign_pod, kept_of_node, left_out
from tuneyard_operators.hub.lanes import Lane
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.kube import (
    ATTEMPT_REPORT,
    NETWORK_POLICY,
    NODE,
    POD,
    RAYJOB,
    SECRET,
    ApiError,
    Cache,
    Connection,
    Forbidden,
    Key,
)
from tuneyard_operators.rendering import ATTEMPT, JOB, JOB_LABELS, NAMESPACE_LABEL, TASK, UID, attempt_name

log = logging.getLogger(__name__)
Object = dict[str, Any]
OnJob = Callable[[Key], None]
_ACTIONS_AT_ONCE = 16
_LISTED_AGAIN_S = 0.1


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
        self.problem = ""
        """Why nothing can be placed on it though it is reached."""
        self.left_out = ""
        """Nodes that could be used and are not, for people."""
        self._began = time.monotonic()
        self._on_job = hears.on_job
        self._on_room = hears.on_room
        self._on_listed = hears.on_listed
        self._spoken: dict[str, float] = {}
        self._failed_pods: dict[str, dict[str, Object]] = defaultdict(dict)
        self._pods: dict[str, set[Key]] = defaultdict(set)
        self._unready: set[str] = set()
        self._inventory: list[NodeInventory] | None = None
        self._inventory_of: Cluster | None = None
        self._read: dict[str, tuple[str, AttemptReport, str]] = {}
        namespace = cluster.spec.namespace
        here = partial(Cache, connection, namespace=namespace, labels=JOB_LABELS)
        self.rayjobs = here(RAYJOB, keep=_kept_of_rayjob, on_change=self._changed)
        self.reports = Cache(connection, ATTEMPT_REPORT, namespace=namespace, on_change=self._reported)
        self.secrets = here(SECRET, keep=_metadata_only, on_change=self._changed)
        self.policies = here(NETWORK_POLICY, keep=_metadata_only, on_change=self._changed)
        self.pods = here(POD, on_change=self._pod_changed)
        self.nodes = Cache(connection, NODE, on_change=self._node_changed, keep=kept_of_node)
        self.foreign = Cache(connection, POD, labels=f"!{JOB}", on_change=self._room_changed, keep=kept_of_foreign_pod)
        self._caches = (self.rayjobs, self.reports, self.secrets, self.pods, self.nodes, self.foreign)
        self.heartbeat = Heartbeat(self.name, connection, self._caches, last_heartbeat, on_change=self._tell_all)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def name(self) -> str:
        return self.cluster.metadata.name

    def start(self) -> None:
        caches = (*self._caches, self.policies)
        self._tasks = [asyncio.create_task(cache.run(), name=f"{self.name}-{cache.kind.plural}") for cache in caches]
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
        """Whether all of the member has been seen once: before that, what is missing may only not have been heard of."""
        return all(cache.synced.is_set() for cache in self._caches) and (self.isolates or isinstance(self.policies.error, Forbidden))

    @property
    def isolates(self) -> bool:
        """Whether attempts get a NetworkPolicy here: the right to make them is the member's switch."""
        return self.policies.synced.is_set() and not isinstance(self.policies.error, Forbidden)

    @property
    def reachable(self) -> bool:
        return not self.heartbeat.error and self.listed

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._began

    def inventory(self) -> list[NodeInventory]:
        """Its nodes, counted anew where something has changed. Shared: not to be changed."""
        if self._inventory is None or self._inventory_of is not self.cluster:
            self._inventory_of, self.problem, self.left_out = self.cluster, "", ""
            try:
                self._inventory = inventory(self.cluster, self.nodes.items.values(), self.foreign.items.values())
                self.left_out = left_out(self.cluster, self.nodes.items.values())
            except Exception as error:  # one broken member must not stop the others
                log.exception("the nodes of member %s cannot be counted", self.name)
                self._inventory, self.problem = [], f"its nodes cannot be counted: {reason_of(error)}"
        return self._inventory

    @property
    def _kept_policies(self) -> tuple[Cache, ...]:
        """Where the right is gone, policies stay: an attempt's end does not wait for what cannot be removed."""
        return (self.policies,) if self.isolates else ()

    def observe(self, attempt: Attempt, now: datetime) -> Observed:
        """What is on the member of one attempt."""
        if not self.reachable:
            why = self.heartbeat.error or "not all of it has been listed"
            return Observed(known=False, unreachable_s=self.heartbeat.away_s(now), why_unreachable=why)
        key = (self.cluster.spec.namespace, attempt.name)
        report, unreadable = self._report(attempt.name)
        return Observed(
            rayjob=self.rayjobs.items.get(key),
            report=report,
            unreadable=unreadable,
            secret=key in self.secrets.items,
            policy=self.isolates and key in self.policies.items,
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

    def is_clean_of(self, attempt: str) -> bool:
        """Whether nothing of an attempt is there any more."""
        key = (self.cluster.spec.namespace, attempt)
        there = any(key in cache.items for cache in (self.rayjobs, self.reports, self.secrets))
        return not there and attempt not in self._pods and attempt not in self.lane

    def forget(self, attempt: str) -> None:
        for known in (self._failed_pods, self._spoken, self._read, self.refusals):
            known.pop(attempt, None)

    def leftovers(self) -> dict[str, Key]:
        """Attempt name -> job of every RayJob, Secret, NetworkPolicy and report here: what a sweep compares with the hub's own record."""
        found: dict[str, Key] = {}
        for cache in (self.rayjobs, self.secrets, self.reports, *self._kept_policies):
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
        for cache in (self.reports, self.secrets, *self._kept_policies, self.rayjobs):
            item = cache.items.get(key)
            going = item is None or item["metadata"].get("deletionTimestamp")
            if not going and await self.connection.delete(cache.kind, namespace, attempt):
                gone.append(cache)
        for cache in gone:  # at once, so that the job is looked at once
            cache.drop(key)
        return key not in self.rayjobs.items and attempt not in self._pods

    async def try_to_remove(self, attempt: str) -> None:
        """`remove`, for whoever looks again later in any case. Raises nothing."""
        try:
            await self.remove(attempt)
        except ApiError as error:
            log.warning("%s on %s could not be removed: %s", attempt, self.name, error)
        except Exception:
            log.exception("%s on %s could not be removed", attempt, self.name)

    def _report(self, attempt: str) -> tuple[AttemptReport | None, str]:
        """What an attempt says, and what of it cannot be read; read once per version. Shared: not to be changed."""
        item = self.reports.items.get((self.cluster.spec.namespace, attempt))
        if item is None:
            return None, ""
        version = item["metadata"]["resourceVersion"]
        known = self._read.get(attempt)
        if known is None or known[0] != version:
            self._read[attempt] = known = (version, *_report(item))
        return known[1], known[2]

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

    def _tell_all(self) -> None:
        """It comes or goes: there is other room, and each job of its own is to be looked at."""
        self._on_room()
        for job in set(self.leftovers().values()):
            self._on_job(job)

    async def _tell_when_listed(self) -> None:
        for cache in self._caches:
            await cache.synced.wait()
        while not self.listed:  # its policies are, or are known to be forbidden
            await asyncio.sleep(_LISTED_AGAIN_S)
        self._on_room()
        self._on_listed(self.name)


def _report(item: Object) -> tuple[AttemptReport, str]:
    """What an attempt says, as far as it can be read, and what of it cannot."""
    goal = read(AttemptGoal, item.get("spec")).value
    state = read(AttemptState, item["status"]) if item.get("status") else None
    problems = state.problems if state is not None else ""
    if problems:
        log.warning("the report %s cannot be read in full: %s", item["metadata"]["name"], problems)
    report = AttemptReport(metadata=Metadata(name=item["metadata"]["name"]), spec=goal, status=state.value if state is not None else None)
    return report, problems


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
    kept_status = {key: value for key, value in _mapping(item.get("status")).items() if key != "rayClusterStatus"}
    return {"metadata": {**item["metadata"], "managedFields": None}, "status": kept_status}


def _mapping(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _metadata_only(item: Object) -> Object:
    return {"metadata": {key: item["metadata"].get(key) for key in ("name", "namespace", "labels", "resourceVersion")}}


def _without_version(item: Object) -> Object:
    return {**item, "metadata": {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}}
