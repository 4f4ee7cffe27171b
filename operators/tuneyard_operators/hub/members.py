"""All members, one per Cluster object.

Every second, and at once after a change of a Cluster: connect (again, if spec or credentials have changed), forget deleted Clusters, count
outages, and write the status of each Cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pydantic import ValidationError

from tuneyard.api import Attempt, Cluster
from tuneyard_operators.hub.clock import seconds_since
from tuneyard_operators.hub.cluster_status import NO_CLUSTER, by_sku, status_of, stored_status, unusable
from tuneyard_operators.hub.connections import Connect, connect
from tuneyard_operators.hub.guard import reason_of
from tuneyard_operators.hub.heartbeat import away_for_s
from tuneyard_operators.hub.inventory import listed_twice
from tuneyard_operators.hub.member import Hears, Member
from tuneyard_operators.hub.member_records import Link, MemberRecord
from tuneyard_operators.hub.metrics import Metrics
from tuneyard_operators.hub.observed import Observed
from tuneyard_operators.hub.outages import COUNTS_S, held_out_until, why_held_out, with_return
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.kube import CLUSTER, ApiError, Cache, Connection
from tuneyard_operators.metrics import Sample, families

log = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0
_CONNECT_AGAIN_S = 10.0
_FRESH_CREDENTIALS_S = 30.0
Object = dict[str, Any]


class Members:
    """`connection`: to the hub's API server, which holds Clusters and Secrets; `own` opens another connection to it."""

    def __init__(self, connection: Connection, own: Connect, settings: Settings, metrics: Metrics, hears: Hears) -> None:
        self.clusters = Cache(connection, CLUSTER, on_change=lambda _key, _old, _new: self._wake.set())
        self._connection = connection
        self._own = own
        self._settings = settings
        self._metrics = metrics
        self._hears = hears
        self._wake = asyncio.Event()
        self._began_s = time.monotonic()
        self._records: defaultdict[str, MemberRecord] = defaultdict(MemberRecord)

    # --- lookups

    def get(self, name: str) -> Member | None:
        record = self._records.get(name)
        return record.link.member if record is not None else None

    def all(self) -> list[Member]:
        return [record.link.member for _, record in sorted(self._records.items()) if record.link.member is not None]

    def is_gone(self, name: str) -> bool:
        """True if no Cluster of this name exists on the hub any more."""
        return self.clusters.synced.is_set() and ("", name) not in self.clusters.items

    @property
    def synced(self) -> bool:
        """Whether every Cluster has been tried. Before that, a job could get the reason that no cluster exists."""
        return self.clusters.synced.is_set() and all(self._is_tried(name) for _, name in self.clusters.items)

    def _is_tried(self, name: str) -> bool:
        record = self._records.get(name)
        if record is None:
            return False
        member = record.link.member
        return bool(record.link.problem) or (member is not None and (member.listed or bool(member.heartbeat.error)))

    @property
    def have_images(self) -> bool:
        return any(item["spec"].get("image") for item in self.clusters.items.values())

    def away(self) -> dict[str, str]:
        """Unusable members, each with the reason: it cannot be reached, or it had too many outages lately."""
        now = datetime.now(UTC)
        found = {member.name: unusable(member, self._held_out(self._records[member.name], now)) for member in self.all()}
        return {name: why for name, why in found.items() if why}

    def _held_out(self, record: MemberRecord, now: datetime) -> str:
        """Why a reachable member gets no new gangs; empty if it gets them."""
        returns = record.outages.returns or []
        until = held_out_until(returns, now)
        return why_held_out(returns, until) if until is not None else ""

    # --- attempts

    def observe(self, attempt: Attempt, name: str, now: datetime) -> Observed:
        """The observed objects of an attempt on the member `name`."""
        member = self.get(name)
        if member is not None:
            return member.observe(attempt, now)
        if not self.is_gone(name):
            return self._unconnected(name, now)
        # The Cluster was deleted, so its attempts cannot be observed any more: they count as lost at once.
        gone = f"the Cluster {name} was removed from the hub"
        return Observed() if attempt.ended_at else Observed(known=False, unreachable_s=1e9, why_unreachable=gone)

    def _unconnected(self, name: str, now: datetime) -> Observed:
        """An attempt on a member without a connection. The time without the member counts from its last heartbeat."""
        record = self._records.get(name)
        problem = record.link.problem if record is not None else ""
        away_s = away_for_s(stored_status(self._item(name)).heartbeat, now, self._began_s) if problem else 0.0
        return Observed(known=False, unreachable_s=away_s, why_unreachable=problem)

    def forget_attempt(self, name: str, attempt: str) -> None:
        """Forget an attempt that is cleaned up on the member `name`, by its status."""
        member = self.get(name)
        if member is not None:
            member.attempts.forget(attempt)

    # --- the loop

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
                link = self._records[name].link
                try:
                    await self._keep(name, link, item)
                except Exception as error:  # one broken cluster must not stop the others
                    link.tried_s, link.problem = time.monotonic(), reason_of(error)
                    log.exception("member %s cannot be used", name)
            for name in [name for name in self._records if ("", name) not in self.clusters.items]:
                await self._drop(self._records.pop(name).link)
            try:
                self._note_outages()
            except Exception:
                log.exception("outages of members cannot be counted")
            await asyncio.gather(*(self._try_to_report(name) for _, name in list(self.clusters.items)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._wake.wait()
            self._wake.clear()

    async def _keep(self, name: str, link: Link, item: Object) -> None:
        """Make or update the Member of a Cluster, by its present spec."""
        now_s = time.monotonic()
        if link.problem and now_s - link.tried_s < _CONNECT_AGAIN_S:
            return
        mark = (item["metadata"]["uid"], item["metadata"].get("generation", 0))
        if link.member is not None and link.mark == mark and not _wants_credentials(link.member):
            return
        link.tried_s = now_s
        try:
            cluster = Cluster.model_validate({key: item[key] for key in ("apiVersion", "kind", "metadata", "spec")}, extra="ignore")
        except ValidationError as error:
            wrong = error.errors(include_input=False)[0]
            link.problem = f"its spec cannot be read: {'.'.join(map(str, wrong['loc']))[:200]}: {wrong['msg'][:500]}"
            return
        if twice := listed_twice(cluster):
            link.problem = f"its SKUs {' and '.join(twice)} are the same kind of GPU: keep one of them"
            return
        link.problem, link.mark = "", mark
        member = link.member
        if member is not None and member.cluster.spec.endpoint == cluster.spec.endpoint and not _wants_credentials(member):
            member.cluster = cluster
            self._hears.on_room()
            return
        await self._drop(link)
        await self._connect(name, link, cluster, mark)

    async def _connect(self, name: str, link: Link, cluster: Cluster, mark: tuple[str, int]) -> None:
        """Connect to the member of a Cluster, and start to follow it."""
        try:
            connection = await connect(
                cluster,
                self._connection,
                self._own,
                self._settings.namespace,
                qps=self._settings.member_qps,
                observe=partial(self._metrics.count_request, name),
            )
        except ApiError as error:
            link.problem = error.message
            log.warning("member %s: %s", name, error.message)
            return
        link.member = Member(cluster, connection, last_heartbeat=stored_status(self._item(name)).heartbeat, hears=self._hears)
        link.mark = mark
        link.member.start()

    async def _drop(self, link: Link) -> None:
        member, link.member, link.mark = link.member, None, None
        if member is not None:
            await member.close()

    def _note_outages(self) -> None:
        """Record returns from outages. The Cluster's status keeps them for the next hub."""
        now_s = time.monotonic()
        for member in self.all():
            outages = self._records[member.name].outages
            if outages.returns is None:
                outages.returns = list(stored_status(self._item(member.name)).returned_at)
            if member.heartbeat.error:
                outages.away_since_s = now_s if outages.away_since_s is None else outages.away_since_s
            elif member.reachable and outages.away_since_s is not None:
                away_s, outages.away_since_s = now_s - outages.away_since_s, None
                if away_s > COUNTS_S:
                    outages.returns = with_return(outages.returns, datetime.now(UTC))
                    log.warning("member %s is back, %d times lately", member.name, len(outages.returns))

    # --- the status of Clusters

    def _item(self, name: str) -> Mapping[str, Any]:
        return self.clusters.items.get(("", name), NO_CLUSTER)

    async def _try_to_report(self, name: str) -> None:
        try:
            await self._report(name)
        except Exception:  # one broken cluster must not stop the others
            log.exception("the status of Cluster %s could not be written", name)

    async def _report(self, name: str) -> None:
        """Write the Cluster's status: at once after a change, else every `heartbeat_s` if only the heartbeat is newer."""
        record, now = self._records[name], datetime.now(UTC)
        status, written = status_of(self._item(name), record, self._held_out(record, now), now), record.written
        changed = {**status, "heartbeat": None} != {**written.status, "heartbeat": None}
        is_due = time.monotonic() - written.written_s > self._settings.heartbeat_s
        if not changed and not (is_due and status["heartbeat"] != written.status.get("heartbeat")):
            return
        try:
            await self._connection.patch(CLUSTER, None, name, {"status": status}, subresource="status")
            written.written_s, written.status = time.monotonic(), status
        except ApiError as error:
            log.warning("the status of Cluster %s could not be written: %s", name, error)

    # --- metrics

    def usable(self) -> list[str]:
        """Names of the members on which gangs may start."""
        away = self.away()
        return [member.name for member in self.all() if member.name not in away and not member.cluster.spec.cordoned]

    def pools(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Free and total slots by member and SKU."""
        return {(member.name, sku): slots for member in self.all() for sku, slots in by_sku(member.inventory()).items()}

    def series(self) -> Iterator[Sample]:
        """Reachability, heartbeat and credentials of each Cluster, also of a Cluster that was never reached."""
        now = datetime.now(UTC)
        for _, name in self.clusters.items:
            member = self.get(name)
            yield families.MEMBER_UP, (name,), float(member is not None and member.reachable)
            heartbeat = member.heartbeat.last if member is not None else stored_status(self._item(name)).heartbeat
            if heartbeat is not None:
                yield families.HEARTBEAT_AGE, (name,), seconds_since(heartbeat, now)
            if member is not None and member.connection.expires_s is not None:
                yield families.CREDENTIALS_END, (name,), member.connection.expires_s


def _wants_credentials(member: Member) -> bool:
    """True if the member refuses its credentials: the Secret may hold fresh ones by now."""
    return member.heartbeat.refused and member.age_s > _FRESH_CREDENTIALS_S
