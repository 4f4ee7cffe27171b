"""All members: one `Member` per Cluster object, made anew when its spec or its credentials change, and their status on the hub."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from tuneyard.api import Cluster, ClusterStatus, NodeInventory
from tuneyard.api.wire import read
from tuneyard_operators.hub.clock import seconds_since
from tuneyard_operators.hub.connecting import Connect, connect
from tuneyard_operators.hub.flapping import COUNTS_S, held_out_until, why_held_out, with_return
from tuneyard_operators.hub.guard import reason_of, with_stalled
from tuneyard_operators.hub.heartbeat import away_for_s
from tuneyard_operators.hub.inventory import listed_twice
from tuneyard_operators.hub.member import Hears, Member
from tuneyard_operators.hub.metrics import Metrics
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.hub.status_size import shortened
from tuneyard_operators.kube import CLUSTER, ApiError, Cache, Connection

log = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0
_CONNECT_AGAIN_S = 10.0
_FRESH_CREDENTIALS_S = 30.0
Object = dict[str, Any]


class Members:
    def __init__(self, hub: Connection, own: Connect, settings: Settings, metrics: Metrics, hears: Hears) -> None:
        self.clusters = Cache(hub, CLUSTER, on_change=lambda _key, _old, _new: self._wake.set())
        self._hub = hub
        self._own = own
        self._settings = settings
        self._metrics = metrics
        self._hears = hears
        self._wake = asyncio.Event()
        self._began = time.monotonic()
        self._members: dict[str, Member] = {}
        self._returns: dict[str, list[str]] = {}
        self._away_since: dict[str, float] = {}
        self._read: dict[str, tuple[str, int]] = {}
        """The uid and generation of the Cluster that each member was made of."""
        self._shown: dict[str, tuple[list[NodeInventory], Object]] = {}
        """The inventory that each member's status was last made of, and that part of the status."""
        self._problems: dict[str, tuple[float, str]] = {}
        self._written: dict[str, tuple[float, Object]] = {}

    def get(self, name: str) -> Member | None:
        return self._members.get(name)

    def all(self) -> list[Member]:
        return [self._members[name] for name in sorted(self._members)]

    def is_gone(self, name: str) -> bool:
        """True if no Cluster of this name exists on the hub any more."""
        return self.clusters.synced.is_set() and ("", name) not in self.clusters.items

    def unconnected(self, name: str, now: datetime) -> Observed:
        """What is seen of attempts on a member to which there is no connection: how long it has been away, by its last heartbeat."""
        _, problem = self._problems.get(name, (0.0, ""))
        heartbeat = _stored(self.clusters.items.get(("", name), {})).heartbeat
        away_s = away_for_s(heartbeat, now, self._began) if problem else 0.0
        return Observed(known=False, unreachable_s=away_s, why_unreachable=problem)

    @property
    def synced(self) -> bool:
        """Whether every Cluster has been tried: before that, a job could be told that no cluster exists."""
        if not self.clusters.synced.is_set():
            return False
        return all(self._tried(name) for _, name in self.clusters.items)

    def _tried(self, name: str) -> bool:
        member = self._members.get(name)
        return name in self._problems or (member is not None and (member.listed or bool(member.heartbeat.error)))

    def away(self) -> dict[str, str]:
        """Why members cannot be used that cannot: they are not reached, or have come and gone too often lately."""
        now = datetime.now(UTC)
        found = {}
        for member in self.all():
            returns = self._returns.get(member.name, [])
            until = held_out_until(returns, now)
            if not member.reachable:
                found[member.name] = member.heartbeat.error or "not all of it has been listed yet"
            elif until is not None:
                found[member.name] = why_held_out(returns, until)
        return found

    def _note_outages(self) -> None:
        """Remember who came back from an outage; what stands in the Cluster's status outlives this hub."""
        now = time.monotonic()
        for member in self.all():
            if member.name not in self._returns:
                self._returns[member.name] = list(_stored(self.clusters.items.get(("", member.name), {})).returned_at)
            if member.heartbeat.error:
                self._away_since.setdefault(member.name, now)
            elif member.reachable and now - self._away_since.pop(member.name, now) > COUNTS_S:
                self._returns[member.name] = with_return(self._returns[member.name], datetime.now(UTC))
                log.warning("member %s is back, %d times lately", member.name, len(self._returns[member.name]))

    @property
    def have_images(self) -> bool:
        return any(item["spec"].get("image") for item in self.clusters.items.values())

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.clusters.run())
                group.create_task(self._follow())
        finally:
            for member in self.all():
                await member.close()

    async def _follow(self) -> None:
        await self.clusters.synced.wait()
        while True:
            for (_, name), item in list(self.clusters.items.items()):
                try:
                    await self._keep(name, item)
                except Exception as error:  # one broken cluster must not stop the others
                    self._problems[name] = (time.monotonic(), reason_of(error))
                    log.exception("member %s cannot be used", name)
            for name in [name for name in self._members if ("", name) not in self.clusters.items]:
                await self._drop(name)
            try:
                self._note_outages()
            except Exception:
                log.exception("outages of members cannot be counted")
            await asyncio.gather(*(self._try_to_report(name) for _, name in list(self.clusters.items)))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _LOOK_EVERY_S)
            self._wake.clear()

    async def _keep(self, name: str, item: Object) -> None:
        """Have a Member for this Cluster, with its present spec."""
        now = time.monotonic()
        tried, problem = self._problems.get(name, (-1e9, ""))
        if problem and now - tried < _CONNECT_AGAIN_S:
            return
        mark = (item["metadata"]["uid"], item["metadata"].get("generation", 0))
        member = self._members.get(name)
        if member is not None and self._read.get(name) == mark and not self._wants_credentials(member):
            return
        try:
            cluster = Cluster.model_validate({key: item[key] for key in ("apiVersion", "kind", "metadata", "spec")}, extra="ignore")
        except ValidationError as error:
            wrong = error.errors(include_input=False)[0]
            self._problems[name] = (now, f"its spec cannot be read: {'.'.join(map(str, wrong['loc']))[:200]}: {wrong['msg'][:500]}")
            return
        if twice := listed_twice(cluster):
            self._problems[name] = (now, f"its SKUs {' and '.join(twice)} are one kind: keep one of them")
            return
        self._problems.pop(name, None)
        self._read[name] = mark
        if member is not None and member.cluster.spec.endpoint == cluster.spec.endpoint and not self._wants_credentials(member):
            member.cluster = cluster
            self._hears.on_room()
            return
        await self._drop(name)
        try:
            connection = await connect(
                cluster,
                self._hub,
                self._own,
                self._settings.namespace,
                qps=self._settings.member_qps,
                observe=lambda verb, resource, status, _s: self._metrics.requests.labels(name, verb, resource, str(status)).inc(),
            )
        except ApiError as error:
            self._problems[name] = (now, error.message)
            log.warning("member %s: %s", name, error.message)
            return
        self._problems.pop(name, None)
        heartbeat = _stored(item).heartbeat
        member = Member(cluster, connection, last_heartbeat=heartbeat, hears=self._hears)
        self._members[name] = member
        member.start()

    def _wants_credentials(self, member: Member) -> bool:
        """True if its credentials are refused: the Secret may hold fresh ones by now."""
        return member.heartbeat.refused and member.age_s > _FRESH_CREDENTIALS_S

    async def _drop(self, name: str) -> None:
        member = self._members.pop(name, None)
        self._read.pop(name, None)
        self._shown.pop(name, None)
        if member is not None:
            await member.close()

    async def _try_to_report(self, name: str) -> None:
        try:
            await self._report(name)
        except Exception:  # one broken cluster must not stop the others
            log.exception("the status of Cluster %s could not be written", name)

    async def _report(self, name: str) -> None:
        """Keep the Cluster's status: at once where something changed, else every heartbeat."""
        member = self._members.get(name)
        status = self._status(name, member)
        when, before = self._written.get(name, (-1e9, {}))
        changed = {**status, "heartbeat": None} != {**before, "heartbeat": None}
        beat = status["heartbeat"] != before.get("heartbeat") and time.monotonic() - when > self._settings.heartbeat_s
        if not changed and not beat:
            return
        try:
            await self._hub.patch(CLUSTER, None, name, {"status": status}, subresource="status")
            self._written[name] = (time.monotonic(), status)
        except ApiError as error:
            log.warning("the status of Cluster %s could not be written: %s", name, error)

    def _status(self, name: str, member: Member | None) -> Object:
        if member is None:
            problem = self._problems.get(name, (0.0, "not connected yet"))[1]
            stored = _stored(self.clusters.items.get(("", name), {})).heartbeat
            return {
                "healthy": False,
                "message": shortened(problem),
                "heartbeat": stored,
                "conditions": self._stalled(name, self._problems.get(name, (0.0, ""))[1]),
            }
        held_out = self.away().get(name, "") if member.reachable else ""
        nodes = member.inventory() if member.listed else []  # first: it says what is wrong with the member
        problem = self._problems.get(name, (0.0, ""))[1] or member.problem
        words = shortened(member.heartbeat.error or held_out or problem or member.left_out)
        status: Object = {"healthy": member.reachable, "message": words, "heartbeat": member.heartbeat.last}
        status["conditions"] = self._stalled(name, problem)
        if name in self._returns:
            status["returnedAt"] = self._returns[name]
        if member.listed:
            status |= self._inventory_of(name, nodes)
        return status

    def _stalled(self, name: str, problem: str) -> list[Any]:
        item = self.clusters.items.get(("", name), {"metadata": {}})
        stored = [each.model_dump(mode="json", by_alias=True) for each in _stored(item).conditions]
        return with_stalled(stored, problem, item["metadata"].get("generation", 0), datetime.now(UTC))

    def _inventory_of(self, name: str, nodes: list[NodeInventory]) -> Object:
        known = self._shown.get(name)
        if known is None or known[0] is not nodes:
            free = ", ".join(f"{sku} {left}/{total}" for sku, (left, total) in _by_sku(nodes).items())
            shown: Object = {"nodes": [node.model_dump(mode="json", by_alias=True) for node in nodes], "free": free}
            self._shown[name] = known = (nodes, shown)
        return known[1]

    def refresh(self) -> None:
        """Bring the gauges of all members up to date."""
        for member in self.all():
            self._metrics.member_up.labels(member.name).set(member.reachable)
            if member.heartbeat.last is not None:
                self._metrics.heartbeat_age.labels(member.name).set(seconds_since(member.heartbeat.last, datetime.now(UTC)))
            for sku, (free, total) in _by_sku(member.inventory()).items():
                self._metrics.gpus.labels(member.name, sku).set(total)
                self._metrics.free_gpus.labels(member.name, sku).set(free)


def _stored(item: Object) -> ClusterStatus:
    """The status of a Cluster without its nodes, as far as it can be read: it outlives the hub that wrote it."""
    status = item.get("status")
    kept = ("heartbeat", "returnedAt", "conditions")
    return read(ClusterStatus, {name: status[name] for name in kept if name in status} if isinstance(status, dict) else {}).value


def _by_sku(nodes: Iterable[NodeInventory]) -> dict[str, tuple[int, int]]:
    """Free and all slots of each SKU."""
    found: dict[str, tuple[int, int]] = {}
    for node in nodes:
        free, total = found.get(node.sku, (0, 0))
        found[node.sku] = (free + node.free, total + node.gpus)
    return dict(sorted(found.items()))
