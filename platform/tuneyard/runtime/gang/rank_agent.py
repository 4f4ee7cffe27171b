"""The agent of one rank. It runs in a worker of Ray's TorchTrainer, as long as the gang stays up.

It starts the rank's process for each order of the job, passes on its events, and reports its end. The process is a fork of a warm server,
if there is one. A dead rank, or the next task, therefore costs a fork, and not a new gang (TorchElastic's agents do the same within one
run).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tuneyard.runtime.gang.mailbox import Directions, Order, RankEnd, this_process
from tuneyard.runtime.gang.rank import RankOrder
from tuneyard.runtime.sessions.stacks import train_stack
from tuneyard.tracking import Warned
from tuneyard.warm import Started, start

_LOOK_S = 1.0
_LEAVE_S = 30.0
"""Seconds that a rank has to end after its result; then it is killed."""


def serve(config: Mapping[str, Any]) -> None:
    """The train function of the gang's TorchTrainer, which has set torchrun's environment and made a process group of the agents.

    `config`: `mailbox` (handle), `server` (socket of a fork server on this machine, or empty). Returns when the gang is closed; raises
    Ray's error when the mailbox is gone.
    """
    import ray

    mailbox, server = config["mailbox"], config["server"]
    agent = _Agent(int(os.environ["RANK"]), mailbox, Path(server) if server else None)
    seen = 0
    try:
        while True:
            directions: Directions = ray.get(mailbox.directions.remote(seen))
            if directions.closed:
                return
            if directions.version != seen:
                seen = directions.version
                agent.follow(directions)
    finally:
        agent.end()


@dataclass
class _Running:
    """A rank's process."""

    order: Order
    process: Started
    channel: Connection
    thread: threading.Thread | None = None


class _Agent:
    def __init__(self, rank: int, mailbox: Any, server: Path | None) -> None:
        self.rank, self._mailbox, self._server = rank, mailbox, server
        self._running: _Running | None = None
        self._fetcher: Any = None
        self._failed = 0
        """Number of the last order whose process could not be started."""

    def follow(self, directions: Directions) -> None:
        order = directions.order
        present = self._running.order.number if self._running is not None else self._failed
        if order is not None and order.number != present and not directions.abandoned:
            self.end()
            self._begin(order)
        if directions.abandoned:
            self.end()
        elif directions.stop and self._running is not None:
            with contextlib.suppress(OSError):
                self._running.channel.send("stop")

    def end(self) -> None:
        """Kill the rank's process, if there is one."""
        running, self._running = self._running, None
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None
        if running is not None:
            running.process.kill()
            if running.thread is not None:
                running.thread.join(_LEAVE_S)

    def _begin(self, order: Order) -> None:
        if order.request.ingestion:
            order = self._with_service(order)
        log = str(Path(order.logs) / f"{order.request.name}-rank-{self.rank}.log")
        needs = train_stack([order.request.task]).needs
        pipes: list[tuple[Connection, Connection]] = []

        def new_channel() -> list[int]:
            pipes.append(Pipe())
            return [pipes[-1][1].fileno()]

        try:
            process, why_cold = start(self._server, "tuneyard.runtime.gang.rank:main", descriptors=new_channel, needs=needs)
        except OSError as error:
            self._failed = order.number
            self._mailbox.ended.remote(order.number, RankEnd(self.rank, 1, raised=f"no process can be started: {error}"))
            return
        finally:
            for mine, theirs in pipes:
                theirs.close()
                if mine is not pipes[-1][0]:
                    mine.close()
        ours = pipes[-1][0]
        place = this_process(self.rank, log, pid=process.pid)
        self._mailbox.begun.remote(order.number, place, f"ranks start cold: {why_cold}" if why_cold else "")
        with contextlib.suppress(OSError):  # the process has died already: `_attend` reports its end
            ours.send(RankOrder(order.number, order.request, log))
        running = self._running = _Running(order, process, ours)
        running.thread = threading.Thread(target=self._attend, args=(running,), name="tuneyard-rank", daemon=True)
        running.thread.start()

    def _with_service(self, order: Order) -> Order:
        """Start the fetcher of the task's ingestion service. The agent of the machine's first rank does this for all its ranks."""
        import ray

        folder = Path(order.request.scratch) / f"streams-{order.number}-{ray.get_runtime_context().get_node_id()}"
        if os.environ.get("LOCAL_RANK", "0") == "0":
            folder.mkdir(parents=True, exist_ok=True)
            self._fetch(folder, order)
        return replace(order, request=replace(order.request, streams=str(folder)))

    def _fetch(self, folder: Path, order: Order) -> None:
        import ray

        from tuneyard.runtime.ingest.service import Fetcher

        def tell(problem: str) -> None:
            self._mailbox.post.remote(order.number, Warned(task=order.request.name, message=f"a data worker: {problem}"))

        with contextlib.suppress(ValueError):  # the master is gone: the ranks build their shards themselves
            self._fetcher = Fetcher(folder, ray.get_actor(order.request.ingestion), on_problem=tell)

    def _attend(self, running: _Running) -> None:
        """Pass on the messages of the process until it has ended, and report its end."""
        told: dict[str, Any] = {}
        code: int | None = None
        with contextlib.suppress(EOFError, OSError):
            while True:
                # Children of the rank may keep the channel open longer than the rank lives.
                if running.channel.poll(_LOOK_S if code is None else 0.0):
                    kind, value = running.channel.recv()
                    if kind == "event":
                        self._mailbox.post.remote(running.order.number, value)
                    else:
                        told[kind] = value
                elif code is not None:
                    break
                else:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        code = running.process.wait(0.0)
        try:
            code = running.process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            running.process.kill()
            code = running.process.wait()
        running.channel.close()
        self._mailbox.ended.remote(running.order.number, RankEnd(self.rank, code, **told))
