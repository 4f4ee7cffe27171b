"""A replica of the hub operator: waits until it leads, leads until it cannot, and serves metrics and health all the while."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from functools import partial
from typing import Any

from tuneyard_operators.hub.hub import Hub
from tuneyard_operators.hub.metrics import Metrics
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.hub.web import serve
from tuneyard_operators.kube import Connection, Election, from_kubeconfig, in_cluster

log = logging.getLogger(__name__)
LEASE_NAME = "tuneyard-hub"


class LostLead(Exception):
    """This replica does not lead any more: it ends, and comes back as a follower."""


async def run_hub(settings: Settings, *, kubeconfig: str | None = None, metrics_port: int = 9090) -> None:
    """Run until SIGTERM. Raises LostLead where another replica has taken over: state in memory must not outlive the lead."""
    metrics = Metrics()

    def observe(verb: str, status: int, _seconds: float) -> None:
        metrics.requests.labels("hub", verb, str(status)).inc()

    again = partial(_connect, kubeconfig)
    connection = await again(qps=settings.qps, observe=observe)
    identity = f"{socket.gethostname()}-{os.getpid()}"
    election = Election(connection, namespace=settings.namespace, name=LEASE_NAME, identity=identity)
    hub = Hub(connection, again, settings, metrics)

    def refresh() -> None:
        metrics.leader.set(election.leading)
        hub.refresh()

    web = await serve(
        metrics_port,
        metrics,
        alive=lambda: hub.stuck if election.leading else "",
        ready=lambda: "" if not election.leading or hub.jobs.synced.is_set() else "JobSpecs are not listed yet",
        refresh=refresh,
    )
    try:
        await _until_signal(_lead(election, hub))
    finally:
        await election.release()
        await web.cleanup()
        await connection.close()


async def _lead(election: Election, hub: Hub) -> None:
    await election.acquire()
    work = asyncio.create_task(hub.run(), name="hub")
    held = asyncio.create_task(election.hold(), name="lease")
    try:
        await asyncio.wait([work, held], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await work
        raise LostLead("another replica leads, or the lease could not be renewed")
    finally:
        for task in (work, held):
            task.cancel()
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await work


async def _connect(kubeconfig: str | None, **options: Any) -> Connection:
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster(**options)
    return await from_kubeconfig(kubeconfig, **options)


async def _until_signal(work: object) -> None:
    """Run a coroutine until it ends, or SIGTERM or SIGINT come."""
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]  # a coroutine
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    waiting = asyncio.create_task(asked.wait())
    done, _ = await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task in done:
        await task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
