"""A small actor on each machine of ranks: copies their logs, and tells which of their processes have ended.

It reserves no CPU in Ray, and uses next to none.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuneyard.api import EnvVar, StorageError
from tuneyard.runtime.attempt.log_shipper import LogShipper, secrets_here
from tuneyard.runtime.gang.mailbox import is_alive
from tuneyard.runtime.nodes.oom import oom_kills
from tuneyard.runtime.nodes.pod import Pod, PodNotice, this_pod
from tuneyard.runtime.nodes.preflight import Finding, NodeChecks, check_node
from tuneyard.storage import open_store


@dataclass(frozen=True)
class LogTarget:
    """The place of an attempt's logs. `variables`: those of spec.env; the agent finds their secrets in its own environment."""

    output: str
    task: str
    attempt: int
    variables: Sequence[EnvVar]


@dataclass(frozen=True)
class Look:
    """`gone`: watched processes that have ended. `oom_kills`: see `oom.oom_kills`. `noticed`: whether this pod must stop soon."""

    gone: frozenset[int]
    oom_kills: int
    noticed: bool = False


class NodeAgent:
    """The actor. Several calls run concurrently, so that slow storage does not make a machine look dead."""

    def __init__(self, target: LogTarget) -> None:
        self._pod, self._output = this_pod(), target.output
        self._notice = PodNotice.here(os.environ)
        if self._notice is not None:
            self._notice.begin_work()
        self._logs = LogShipper(target.output, target.task, target.attempt, secrets_here(target.variables))

    def hello(self) -> tuple[Pod, int, Look]:
        """The agent's pod, its process id, and a first look."""
        return self._pod, os.getpid(), self.look([])

    def look(self, pids: Sequence[int]) -> Look:
        noticed = self._notice is not None and self._notice.given
        return Look(frozenset(pid for pid in pids if not is_alive(pid)), oom_kills(in_container=True), noticed)

    def clock(self) -> float:
        return time.time()

    def memory_gb(self) -> float:
        from tuneyard.catalog.cpu import machine_memory_gb

        return machine_memory_gb()

    def measured(self, sku: str) -> dict[str, Any]:
        """The peaks of this machine, measured once per job and kind of machine. They are kept in the job's output, and here for the ranks.

        Raises BadInput.
        """
        from tuneyard.catalog import measured as kinds

        if (kept := kinds.known_measurement(sku)) is not None:
            return kept
        store, name = open_store(self._output), f"machines/{kinds.measurement_file(sku)}"
        with contextlib.suppress(StorageError, ValueError):
            found = json.loads(store.get(name))
            if kinds.keep_measurement(sku, found):
                return dict(found)
        measured = kinds.new_measurement(sku)
        kinds.keep_measurement(sku, measured)
        with contextlib.suppress(StorageError):  # the next attempt measures again
            store.put(name, json.dumps(measured, indent=2).encode())
        return measured

    def check(self, checks: NodeChecks) -> list[Finding]:
        return check_node(checks, self._pod)

    def ship(self, source: str, path: str) -> None:
        self._logs.add(source, path)

    def tail(self, source: str, lines: int) -> str:
        return self._logs.tail(source, lines)

    def close(self, patience_s: float) -> bool:
        """Copy the rest of the logs. False if a part of it could not be stored."""
        complete = self._logs.close(patience_s)
        if self._notice is not None:
            self._notice.end_work()
        return complete


AGENT_OPTIONS = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 6}
