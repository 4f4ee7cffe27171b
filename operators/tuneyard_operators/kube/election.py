"""Elects one leader among replicas by a Lease object, as in client-go: the holder renews the Lease, the others poll it.

Clocks of other machines do not matter: a challenger measures by its own monotonic clock for how long the Lease has not changed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any

from tuneyard.kubernetes import ApiError, Conflict, Missing
from tuneyard.kubernetes.kinds import LEASE
from tuneyard_operators.kube.connection import Connection

log = logging.getLogger(__name__)
_ACTS_FOR = 2 / 3
"""Part of its lease in which a leader acts, as in client-go (10 s of 15 s). The rest is for requests under way."""


class Election:
    """`acquire` returns once this replica is leader; `renew` returns once another replica may be leader.

    A leader on a frozen machine may find a new leader, or outdated caches, when it continues. Once its last renewal is too old, `may_act`
    is therefore false; once its lease has run out, `renew` returns, and the replica starts over.
    """

    def __init__(
        self, connection: Connection, *, namespace: str, name: str, identity: str, lease_s: float = 15.0, renew_s: float = 4.0
    ) -> None:
        self._connection = connection
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._lease: dict[str, Any] = {}
        self._renewed_s = 0.0
        """When the last successful renewal was sent, by the system's monotonic clock: the event loop's `time` may be cached."""
        self.leading = False

    def may_act(self) -> bool:
        """Whether no other replica can be leader at this moment."""
        return self.leading and self._since_renewal_s() < self._lease_s * _ACTS_FOR

    def _since_renewal_s(self) -> float:
        return time.monotonic() - self._renewed_s

    async def acquire(self) -> None:
        """Wait until the lease is free or has run out, and take it."""
        loop = asyncio.get_running_loop()
        seen, since = "", loop.time()
        while True:
            try:
                current = await self._current()
                version = current.get("metadata", {}).get("resourceVersion", "")
                if version != seen:
                    seen, since = version, loop.time()
                holder = (current.get("spec") or {}).get("holderIdentity") or ""
                if not holder or holder == self._identity or loop.time() - since > self._lease_s:
                    self._lease = await self._write(current)
                    self.leading = True
                    log.info("leading as %s", self._identity)
                    return
            except Conflict:
                pass
            except ApiError as error:
                log.warning("cannot read the lease %s/%s: %s", self._namespace, self._name, error)
            await asyncio.sleep(min(1.0, self._renew_s))

    async def renew(self) -> None:
        """Renew the lease until another replica holds it or may take it."""
        while self.leading:
            await asyncio.sleep(self._renew_s if self._since_renewal_s() < self._renew_s * 1.5 else 0.5)
            if self._since_renewal_s() > self._lease_s:
                log.error("this replica stood still for %.0f s: it starts over", self._since_renewal_s())
                break
            try:
                async with asyncio.timeout(self._lease_s * (1 - _ACTS_FOR)):
                    self._lease = await self._write(self._lease)
            except Conflict:
                break
            except (ApiError, TimeoutError) as error:
                if self._since_renewal_s() > self._lease_s * _ACTS_FOR:
                    log.error("the lease could not be renewed for %.0f s: %s", self._since_renewal_s(), error)
                    break
        self.leading = False

    async def release(self) -> None:
        """Give up the lease, if this replica holds it. It is read first: a renewal without an answer may have been stored."""
        if not self.leading:
            return
        self.leading = False
        try:
            current = await self._current()
            if (current.get("spec") or {}).get("holderIdentity") == self._identity:
                spec = {"holderIdentity": "", "renewTime": _now()}
                await self._connection.replace(LEASE, self._namespace, self._name, {**current, "spec": spec})
        except ApiError as error:
            log.warning("the lease could not be released: %s", error)

    async def _current(self) -> dict[str, Any]:
        try:
            return await self._connection.get(LEASE, self._namespace, self._name)
        except Missing:
            return {}

    async def _write(self, current: dict[str, Any]) -> dict[str, Any]:
        spec = {"holderIdentity": self._identity, "leaseDurationSeconds": int(self._lease_s), "renewTime": _now()}
        sent_s = time.monotonic()
        if current:
            whole = {**current, "spec": {**current.get("spec", {}), **spec}}
            written = await self._connection.replace(LEASE, self._namespace, self._name, whole)
        else:
            written = await self._connection.create(LEASE, self._namespace, {"metadata": {"name": self._name}, "spec": spec})
        self._renewed_s = sent_s
        return written


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
