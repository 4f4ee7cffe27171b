"""Connects a gang with its job: takes the job's orders, and returns events and ends of ranks. A Ray actor, which also runs the trainer.

Agents wait for directions in a call that returns when there are new ones, so that they do not poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuneyard.api import TuneyardError
from tuneyard.runtime.nodes.pod import Pod, this_pod
from tuneyard.tracking import Event
from tuneyard.training.request import TrainRequest, TrainResult

_ANSWER_S = 10.0
"""A call for directions returns after this time even without new ones: the agent may be gone."""


@dataclass(frozen=True)
class RankProcess:
    """The process of a rank or an engine, by which the job notices its death. `ray_node`: Ray's id of the machine."""

    rank: int
    pid: int
    host: str
    log: str
    pod: Pod
    ray_node: str


@dataclass(frozen=True)
class Order:
    """One start of all ranks of a gang. `number` grows with each order. `logs`: folder for logs on each machine."""

    number: int
    request: TrainRequest
    logs: str


@dataclass(frozen=True)
class Directions:
    """Present instructions to the agents. `stop`: ask the ranks to stop. `abandoned`: kill the ranks of `order`. `closed`: end the gang."""

    version: int = 0
    order: Order | None = None
    stop: bool = False
    abandoned: bool = False
    closed: bool = False


@dataclass(frozen=True)
class RankEnd:
    """How the process of a rank ended: with a result, an error of Tuneyard, another exception (`raised`), or only an exit code (negative:
    the signal that killed it)."""

    rank: int
    exit_code: int
    result: TrainResult | None = None
    error: TuneyardError | None = None
    raised: str = ""


@dataclass(frozen=True)
class GangShape:
    """Size and options of a gang. `server`: socket of the fork server on each machine, or empty. `scratch`: folder for marker files."""

    workers: int
    use_gpu: bool
    server: str
    scratch: str


@dataclass(frozen=True)
class GangEnd:
    """How the agents ended; all empty if they were closed. `error`: error of the whole gang. `failures`: exceptions of agents, by rank.
    `died`: ranks whose agent died without an exception."""

    error: str = ""
    failures: Mapping[int, str] = field(default_factory=dict)
    died: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Letters:
    """Events and remarks since the last call; of the present order, all started ranks, and the ends of ranks in their order."""

    events: list[Event] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    begun: list[RankProcess] = field(default_factory=list)
    ended: list[RankEnd] = field(default_factory=list)


class Mailbox:
    """The actor. Calls of one agent arrive in order; calls about an earlier order are dropped."""

    def __init__(self) -> None:
        self._directions = Directions()
        self._changed = asyncio.Condition()
        self._events: list[Event] = []
        self._remarks: list[str] = []
        self._begun: dict[int, RankProcess] = {}
        self._ended: dict[int, RankEnd] = {}
        self._placement: Any = None

    async def run(self, shape: GangShape) -> GangEnd:
        """Place the agents, and wait for their end."""
        import ray

        mailbox = ray.get_runtime_context().current_actor

        def in_thread() -> GangEnd:
            from tuneyard.runtime.gang.trainer import run_agents  # late: this actor alone needs Ray Train

            return run_agents(shape, mailbox, on_placed=self._placed)

        return await asyncio.to_thread(in_thread)

    def _placed(self, placement: Any) -> None:
        self._placement = placement

    async def placement(self) -> Any:
        """The placement group of the agents; None before it is created."""
        return self._placement

    async def directions(self, seen: int) -> Directions:
        """The present directions. Waits until they have another version than `seen`, for at most `_ANSWER_S`."""
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait_for(lambda: self._directions.version != seen), _ANSWER_S)
        return self._directions

    async def order(self, order: Order) -> None:
        self._events, self._begun, self._ended = [], {}, {}
        await self._direct(order=order, stop=False, abandoned=False)

    async def ask_stop(self) -> None:
        await self._direct(stop=True)

    async def abandon(self) -> None:
        await self._direct(abandoned=True)

    async def close(self) -> None:
        await self._direct(closed=True)

    async def _direct(self, **changes: Any) -> None:
        async with self._changed:
            self._directions = replace(self._directions, version=self._directions.version + 1, **changes)
            self._changed.notify_all()

    async def begun(self, number: int, rank: RankProcess, remark: str) -> None:
        """Record a started rank. `remark`: a note for people about its start, or empty."""
        if self._is_present(number):
            self._begun[rank.rank] = rank
            self._remarks += [remark] if remark else []

    async def post(self, number: int, event: Event) -> None:
        if self._is_present(number):
            self._events.append(event)

    async def ended(self, number: int, end: RankEnd) -> None:
        if self._is_present(number):
            self._ended[end.rank] = end

    async def drain(self) -> Letters:
        events, self._events = self._events, []
        remarks, self._remarks = self._remarks, []
        begun = [rank for _, rank in sorted(self._begun.items())]
        return Letters(events, remarks, begun, list(self._ended.values()))

    def _is_present(self, number: int) -> bool:
        return self._directions.order is not None and self._directions.order.number == number


def open_mailbox(*, executable: str, variables: Mapping[str, str]) -> Any:
    """A handle of a new Mailbox actor, which lives as long as the handle. It runs on this machine, so that no other machine's loss ends it.

    `executable`: command that starts its process instead of Python, or empty. `variables`: variables of its environment.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    runtime_env: dict[str, Any] = {"env_vars": dict(variables), **({"py_executable": executable} if executable else {})}
    return ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy=here, runtime_env=runtime_env)(Mailbox).remote()


def this_process(rank: int, log: str, *, pid: int | None = None) -> RankProcess:
    """This Ray worker's process; or the process `pid`, which it has started."""
    import ray

    return RankProcess(rank, pid or os.getpid(), socket.gethostname(), log, this_pod(), ray.get_runtime_context().get_node_id())


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs. Zombies do not count."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def by_rank(ends: Sequence[RankEnd]) -> list[RankEnd]:
    return sorted(ends, key=lambda end: end.rank)
