"""Who leads: a replica that stood still acts no more, whatever its own clockwork believes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kubernetes_asyncio import client

from tuneyard_operators.kube import LEASE, Conflict, Connection, Election, Unreachable, election


class OneLease:
    """An API server that holds a Lease, or (`away`) does not answer."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] = {}
        self.away = False

    async def get(self, *_where: Any) -> dict[str, Any]:
        return self.lease

    async def create(self, _kind: Any, _namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self.replace(_kind, _namespace, "", body)

    async def replace(self, _kind: Any, _namespace: str, _name: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.away:
            raise Unreachable(0, "away")
        version = self.lease.get("metadata", {}).get("resourceVersion", "0")
        if body["metadata"].get("resourceVersion", "0") != version:
            raise Conflict(409, "changed meanwhile")
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(int(version) + 1)}}
        return self.lease


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds on the machine's clock, which the election reads."""
    now = [100.0]
    monkeypatch.setattr(election, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def leader(server: OneLease) -> Election:
    return Election(cast(Connection, server), namespace="n", name="l", identity="one", lease_s=15, renew_s=0.01)


async def _leads(server: OneLease, then: Callable[[], None]) -> tuple[bool, bool, bool]:
    """Whether a leader may act before `then` and at once after it, and whether it still holds the lease a moment later."""
    one = leader(server)
    assert not one.may_act()
    await one.acquire()
    before = one.may_act()
    then()
    at_once = one.may_act()
    holding = asyncio.create_task(one.renew())
    await asyncio.sleep(0.7)
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    return before, at_once, one.leading


@pytest.mark.parametrize(
    ("stood_still_s", "at_once", "later"),
    [(5, True, True), (11, False, True), (16, False, False)],
    ids=["within the lease", "until it has renewed", "longer than the lease, although nobody took it"],
)
def test_a_leader_that_stood_still_acts_again_once_it_has_renewed_or_starts_over(
    clock: list[float], stood_still_s: float, at_once: bool, later: bool
) -> None:
    def stand_still() -> None:
        clock[0] += stood_still_s

    assert asyncio.run(_leads(OneLease(), stand_still)) == (True, at_once, later)


def test_a_leader_whose_lease_another_has_taken_leads_no_more() -> None:
    server = OneLease()

    def taken() -> None:
        server.lease = {**server.lease, "metadata": {**server.lease["metadata"], "resourceVersion": "7"}}

    assert asyncio.run(_leads(server, taken)) == (True, True, False)


def test_a_leader_that_cannot_renew_acts_until_its_lease_is_old(clock: list[float]) -> None:
    server = OneLease()

    def cut_off() -> None:
        server.away = True
        clock[0] += 9

    assert asyncio.run(_leads(server, cut_off)) == (True, True, True)


@pytest.mark.parametrize("may", [True, False])
def test_a_connection_reads_always_and_writes_while_its_replica_leads(may: bool) -> None:
    async def refused() -> list[str]:
        configuration = client.Configuration()
        configuration.host = "http://127.0.0.1:9"  # nobody listens
        connection = Connection(configuration, may_write=lambda: may)
        said = []
        for call in (
            connection.get(LEASE, "n", "l"),
            connection.create(LEASE, "n", {}),
            connection.patch(LEASE, "n", "l", {}),
            connection.replace(LEASE, "n", "l", {}),
            connection.delete(LEASE, "n", "l"),
        ):
            with pytest.raises(Unreachable) as error:
                await call
            said.append("sent" if "does not answer" in error.value.message else "not sent")
        await connection.close()
        return said

    assert asyncio.run(refused()) == ["sent", *(["sent"] if may else ["not sent"]) * 4]
