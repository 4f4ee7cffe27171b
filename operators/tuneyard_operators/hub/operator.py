"""A replica of the hub operator: waits to become leader, runs a hub while it is leader, and serves metrics and health checks throughout."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from tuneyard.api import Cluster
from tuneyard_operators.hub.clock import Clock, utc_now
from tuneyard_operators.hub.connections import Connect, connect
from tuneyard_operators.hub.hub import Hub
from tuneyard_operators.hub.metrics import Metrics
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.hub.web import serve
from tuneyard_operators.kube import Connection, Election, from_kubeconfig, in_cluster
from tuneyard_operators.logs import AddTo, Gone, serve_logs

log = logging.getLogger(__name__)
LEASE_NAME = "tuneyard-hub"
_READERS_QPS = 100.0
"""Most requests a second to the hub's API server for the API of logs."""


class _Replica:
    """Runs a new hub each time the replica becomes leader: no memory of an earlier term is kept."""

    def __init__(self, election: Election, new_hub: Callable[[], Hub], metrics: Metrics) -> None:
        self.election = election
        self.hub: Hub | None = None
        self._metrics = metrics
        self._new_hub = new_hub

    async def run(self) -> None:
        while True:
            await self.election.acquire()
            self.hub = self._new_hub()
            work = asyncio.create_task(self.hub.run(), name="hub")
            lease = asyncio.create_task(self.election.renew(), name="lease")
            try:
                await asyncio.wait([work, lease], return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    await work
                log.warning("another replica leads, or the lease could not be renewed: following")
            finally:
                await _cancelled(work, lease)
                self.hub = None

    def alive(self) -> str:
        return self.hub.cycles.stuck if self.hub is not None else ""

    def ready(self) -> str:
        return "JobSpecs are not listed yet" if self.hub is not None and not self.hub.jobs.synced.is_set() else ""

    def refresh(self) -> None:
        """Bring the metrics up to date before they are read."""
        self._metrics.leader.set(self.election.leading)
        self._metrics.state.sources = self.hub.state.sources if self.hub is not None and self.hub.jobs.synced.is_set() else ()


async def run_hub(
    settings: Settings, *, kubeconfig: str | None = None, metrics_port: int = 9090, logs_port: int = 0, clock: Clock = utc_now
) -> None:
    """Run until SIGTERM or SIGINT. Raises an error that the hub cannot continue after; a new start may.

    `logs_port`: port of the API of logs; 0: not served. `clock`: the present time for Schedules.
    """
    metrics = Metrics()
    observe = partial(metrics.count_request, "hub")
    again = partial(_connect, kubeconfig)
    lease = await again(observe=observe)
    identity = f"{socket.gethostname()}-{os.getpid()}"
    election = Election(lease, namespace=settings.namespace, name=LEASE_NAME, identity=identity)
    as_leader = partial(again, may_write=election.may_act)
    connection = await as_leader(qps=settings.qps, observe=observe)
    replica = _Replica(election, partial(Hub, connection, as_leader, settings, metrics, clock), metrics)
    web = await serve(metrics_port, metrics, alive=replica.alive, ready=replica.ready, refresh=replica.refresh)
    readers = await again(qps=_READERS_QPS, observe=observe)
    logs = [asyncio.create_task(_serve_logs(readers, again, logs_port, settings, metrics), name="logs")] if logs_port else []
    try:
        await _until_signal(replica.run())
    finally:
        await replica.election.release()
        await _cancelled(*logs)
        await web.cleanup()
        for each in (readers, connection, lease):
            await each.close()


async def _serve_logs(connection: Connection, again: Connect, port: int, settings: Settings, metrics: Metrics) -> None:
    def count(code: int) -> None:
        metrics.log_requests.labels(str(code)).inc()

    async def reach(cluster: Cluster) -> Connection:
        return await connect(cluster, connection, again, settings.namespace, at_once=4)

    try:
        history, gone = _history_api(connection, settings.history.url) if settings.history.url else (None, None)
        own = settings.namespace, settings.defaults.output
        await serve_logs(connection, port, reach=reach, namespace=own[0], output=own[1], count=count, history=history, gone=gone)
    except Exception:
        log.exception("logs are not served any more")


def _history_api(connection: Connection, url: str) -> tuple[AddTo, Gone]:
    """The paths of run history, and its jobs for the API of logs. Its libraries are loaded by a hub that has one."""
    from tuneyard_operators.history.reader import HistoryReader
    from tuneyard_operators.history.server import HistoryApi

    reader = HistoryReader(connection, url)
    return lambda app, permissions: HistoryApi(reader, permissions).add_to(app), reader.gone


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _connect(kubeconfig: str | None, **options: Any) -> Connection:
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster(**options)
    return await from_kubeconfig(kubeconfig, **options)


async def _until_signal(work: Coroutine[None, None, None]) -> None:
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    waiting = asyncio.create_task(asked.wait(), name="signal")
    done, _ = await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task in done:
        await task
    await _cancelled(task)
