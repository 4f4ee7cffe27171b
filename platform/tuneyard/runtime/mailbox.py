"""The line between the ranks of a task and the job: events come out, one request (stop) goes in. One Ray actor per attempt."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuneyard.tracking import Event


@dataclass(frozen=True)
class RankProcess:
    """Where a rank runs, so that the job can tell its death from its end."""

    rank: int
    pid: int
    host: str
    log: str


@dataclass(frozen=True)
class Letters:
    """Events since the last time, ranks that have begun and not ended, and what the ranks raised that ended with an error."""

    events: list[Event]
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
        running = [rank for number, rank in sorted(self._ranks.items()) if number not in self._ended]
        return Letters(events, running, [error for error in self._ended.values() if error])

    def ask_stop(self) -> None:
        self._stop = True

    def stop_asked(self) -> bool:
        return self._stop


def open_mailbox() -> Any:
    """A handle to a new Mailbox actor, which lives as long as somebody holds the handle."""
    import ray

    return ray.remote(num_cpus=0, max_restarts=0)(Mailbox).remote()


def this_process(rank: int, log: str) -> RankProcess:
    return RankProcess(rank, os.getpid(), socket.gethostname(), log)


def died(ranks: Sequence[RankProcess]) -> list[RankProcess]:
    """Those of `ranks` on this machine whose process is gone."""
    here = socket.gethostname()
    return [rank for rank in ranks if rank.host == here and not _alive(rank.pid)]


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False
