"""The line between the ranks of a task and the job: events come out, one request (stop) goes in. One Ray actor per attempt."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuneyard.runtime.pod import Pod, this_pod
from tuneyard.tracking import Event


@dataclass(frozen=True)
class RankProcess:
    """Where a rank, or an engine, runs, so that the job can tell its death from its end. `ray_node`: Ray's id of the machine."""

    rank: int
    pid: int
    host: str
    log: str
    pod: Pod
    ray_node: str


@dataclass(frozen=True)
class Letters:
    """Events since the last time, ranks that have begun, those that have not ended, and what ranks raised that ended with an error."""

    events: list[Event]
    begun: list[RankProcess]
    running: list[RankProcess]
    errors: list[str]


class Mailbox:
    """State of the actor. Calls of one rank arrive in the order it made them."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._ranks: dict[int, RankProcess] = {}
        self._ended: dict[int, str] = {}
        self._stop = False

    def hello(self, rank: RankProcess) -> None:
        self._ranks[rank.rank] = rank

    def goodbye(self, rank: int, error: str) -> None:
        self._ended[rank] = error

    def post(self, event: Event) -> None:
        self._events.append(event)

    def drain(self) -> Letters:
        events, self._events = self._events, []
        begun = [rank for _, rank in sorted(self._ranks.items())]
        running = [rank for rank in begun if rank.rank not in self._ended]
        return Letters(events, begun, running, [error for error in self._ended.values() if error])

    def ask_stop(self) -> None:
        self._stop = True

    def stop_asked(self) -> bool:
        return self._stop


def open_mailbox() -> Any:
    """A handle to a new Mailbox actor, which lives as long as somebody holds the handle; on this machine, so that it dies with no other."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy=here)(Mailbox).remote()


def this_process(rank: int, log: str) -> RankProcess:
    """The process of a Ray worker, which this is."""
    import ray

    return RankProcess(rank, os.getpid(), socket.gethostname(), log, this_pod(), ray.get_runtime_context().get_node_id())


def died(ranks: Sequence[RankProcess]) -> list[RankProcess]:
    """Those of `ranks` on this machine whose process is gone."""
    here = socket.gethostname()
    return [rank for rank in ranks if rank.host == here and not is_alive(rank.pid)]


def is_alive(pid: int) -> bool:
    """True while a process of this machine runs."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False
