"""The driver's view of the machines of an attempt: an agent on each machine, asked every second which processes still live.

Ray itself takes up to half a minute to declare a machine dead, and its training controller may wait longer. The loss of an agent, which
dies with the ranks on its machine, shows at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tuneyard.api import BadInput, Blame, FailureKind, JobFailed, StorageError, TuneyardError
from tuneyard.runtime.environment import hide
from tuneyard.runtime.gang.mailbox import RankProcess
from tuneyard.runtime.nodes.agent import LogTarget, Look
from tuneyard.runtime.nodes.calls import START_LIMIT_S, Node, answer, machine_lost, new_agent, skew_s, worker_nodes
from tuneyard.runtime.nodes.pod import Pod
from tuneyard.runtime.nodes.preflight import Finding, NodeChecks, clock_findings
from tuneyard.storage import open_store
from tuneyard.tracking import LogReader

_EVERY_S = 1.0
_SILENT_S = 45.0
"""Seconds without an answer after which an agent counts as lost, even if Ray has not noticed."""
_UNREACHABLE_S = 8.0
"""The same if nothing listens at its address any more."""
_CALL_LIMIT_S = 10.0
_CHECK_LIMIT_S = 300.0
_FLUSH_S = 90.0


@dataclass(frozen=True)
class _Asked:
    """A look that has not been answered."""

    reference: Any
    at: float


class Nodes:
    """Agents on all machines with CPUs or GPUs for ranks. Call `start` first, and `close` at the end."""

    def __init__(self, target: LogTarget, secrets: Sequence[str]) -> None:
        self._target = target
        self._secrets = secrets
        self._nodes: dict[str, Node] = {}
        self._sources: dict[str, str] = {}
        """Source -> key of the machine whose agent copies it."""
        self._early: dict[str, RankProcess] = {}
        """Source -> a process to follow once the agent of its machine is up."""
        self._measured_as = ""
        """SKU for which new machines measure their peaks; empty if they need not."""
        self._lock = threading.RLock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tuneyard-nodes", daemon=True)

    def start(self) -> None:
        """Start an agent on every machine. Raises JobFailed if one does not start."""
        import ray

        agents = {key: new_agent(key, self._target) for key in worker_nodes()}
        hellos = {key: agent.hello.remote() for key, agent in agents.items()}
        ready, _ = ray.wait(list(hellos.values()), num_returns=len(hellos), timeout=START_LIMIT_S)
        for key, hello in hellos.items():
            if hello not in ready:
                raise machine_lost(f"the machine {key[:8]} of the Ray cluster started no process within {START_LIMIT_S:g} s")
            self._add(key, agents[key], answer(hello))
        self._thread.start()

    def _add(self, key: str, agent: Any, hello: tuple[Pod, int, Look]) -> None:
        pod, pid, look = hello
        with self._lock:
            self._nodes[key] = Node(
                key, agent, pod, time.monotonic(), oom_kills=look.oom_kills, oom_kills_before=look.oom_kills, pids=[pid]
            )
            early = [(source, process) for source, process in self._early.items() if process.ray_node == key]
        for source, process in early:
            self.follow(process, source)

    @property
    def living(self) -> list[Node]:
        with self._lock:
            return [node for node in self._nodes.values() if not node.lost]

    # Preflight

    def check(self, checks: NodeChecks) -> list[Finding]:
        """Check every machine: disk, access to storage, GPUs, and its clock beside the others'. Raises JobFailed if one is lost."""
        nodes = self.living
        findings: list[Finding] = []
        for node, reference in [(node, node.agent.check.remote(checks)) for node in nodes]:
            findings += answer(reference, node.pod, limit_s=_CHECK_LIMIT_S)
        return findings + clock_findings({node.pod: skew_s(node) for node in nodes})

    def memory_gb(self) -> float:
        """Total host memory of all machines."""
        return float(sum(answer(node.agent.memory_gb.remote(), node.pod) for node in self.living))

    def measured(self, sku: str) -> dict[str, Any]:
        """Peaks of the first machine, which is of this SKU. Afterwards all other machines have their peaks too: one machine per kind
        measures.

        Raises BadInput.
        """
        import ray

        self._measured_as = sku
        first, *others = self.living
        try:
            measured: dict[str, Any] = answer(first.agent.measured.remote(sku), first.pod, limit_s=_CHECK_LIMIT_S)
            for node, reference in [(node, node.agent.measured.remote(sku)) for node in others]:
                answer(reference, node.pod, limit_s=_CHECK_LIMIT_S)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, BadInput):
                raise error.cause from error
            raise
        return measured

    # Processes

    def follow(self, process: RankProcess, source: str) -> None:
        """Watch a process, and copy its log under this name. Where a machine has just joined, its rank may start before our agent."""
        with self._lock:
            self._early.pop(source, None)
            node = self._nodes.get(process.ray_node)
            if node is None or node.lost:
                self._early[source] = process
                return
            if process.pid in node.pids and self._sources.get(source) == node.key:
                return
            node.pids.append(process.pid)
            node.gone -= {process.pid}  # an earlier process may have had this id
            self._sources[source] = node.key
        node.agent.ship.remote(source, process.log)

    def gone(self, processes: Iterable[RankProcess]) -> list[RankProcess]:
        """The processes that have ended, or whose machine is lost."""
        with self._lock:
            return [p for p in processes if (node := self._nodes.get(p.ray_node)) is not None and (node.lost or p.pid in node.gone)]

    def why_lost(self, process: RankProcess) -> str:
        """Why the machine of a process counts as lost; empty if it lives."""
        with self._lock:
            node = self._nodes.get(process.ray_node)
            return node.lost if node is not None else ""

    def whole(self, slots: int, *, kind: str, limit_s: float, should_stop: Callable[[], bool]) -> bool:
        """Wait until the living machines have room for `slots` ranks again: KubeRay replaces a lost pod in place. False if that takes
        longer than `limit_s`, or if a stop was asked for."""
        deadline = time.monotonic() + limit_s
        while not should_stop() and time.monotonic() < deadline:
            if self.room(kind) >= slots:
                return True
            time.sleep(_EVERY_S / 4)
        return False

    def room(self, kind: str) -> float:
        """Number of ranks that the living machines have room for: their CPUs or GPUs (`kind`)."""
        import ray

        with self._lock:
            known = {node.key for node in self._nodes.values() if not node.lost}
        return float(sum(node["Resources"].get(kind, 0.0) for node in ray.nodes() if node["Alive"] and node["NodeID"] in known))

    @property
    def last_lost(self) -> Node | None:
        """The last lost machine; None if all live."""
        with self._lock:
            return next((node for node in reversed(self._nodes.values()) if node.lost), None)

    @property
    def noticed(self) -> bool:
        """Whether a pod has got notice to stop: its node is drained or reclaimed."""
        with self._lock:
            return any(node.noticed for node in self._nodes.values())

    def oom_kills(self) -> int:
        """Processes that kernels have killed for lack of memory since the start."""
        with self._lock:
            return sum(node.oom_kills - node.oom_kills_before for node in self._nodes.values())

    def settle(self, limit_s: float) -> None:
        """Wait until every machine has answered again, or is lost, so that all losses up to now are known. Waits for at most `limit_s`."""
        now, deadline = time.monotonic(), time.monotonic() + limit_s
        while time.monotonic() < deadline and any(node.looked_at < now for node in self.living):
            time.sleep(_EVERY_S / 10)

    def raise_if_none_is_left(self) -> None:
        """Raises JobFailed if all machines are lost."""
        with self._lock:
            nodes = list(self._nodes.values())
        if nodes and all(node.lost for node in nodes):
            first = nodes[0]
            raise JobFailed(
                f"all {len(nodes)} machines of the attempt are lost: {first.pod} {first.lost}",
                "commits are kept; the next attempt resumes from there",
                kind=FailureKind.NODE_LOST,
                blame=Blame(node=first.pod.node),
            )

    def _watch(self) -> None:
        import ray

        asked: dict[str, _Asked] = {}
        hellos: dict[str, tuple[Any, Any]] = {}
        while not self._done.wait(_EVERY_S):
            try:
                self._welcome(hellos)
                for node in self.living:
                    if node.key not in asked:
                        asked[node.key] = _Asked(node.agent.look.remote(list(node.pids)), time.monotonic())
                references = [ask.reference for ask in asked.values()]
                ready, _ = ray.wait(references, num_returns=len(references), timeout=_EVERY_S) if references else ([], [])
                for key, ask in list(asked.items()):
                    if ask.reference in ready:
                        asked.pop(key)
                        self._take(self._nodes[key], ask)
                    elif time.monotonic() - ask.at > _SILENT_S:
                        asked.pop(key)
                        self._lose(self._nodes[key], f"has not answered for {_SILENT_S:g} s")
            except (TuneyardError, ray.exceptions.RayError, RuntimeError, OSError):
                # A new machine was lost again, or Ray is being shut down, which the job's own thread notices too.
                if not ray.is_initialized():
                    return

    def _take(self, node: Node, ask: _Asked) -> None:
        import ray

        try:
            look: Look = ray.get(ask.reference)
        except ray.exceptions.ActorUnavailableError:
            if time.monotonic() - node.looked_at > _UNREACHABLE_S:
                self._lose(node, "cannot be reached any more")
            return
        except ray.exceptions.RayActorError:
            self._lose(node, "is gone with all its processes")
            return
        with self._lock:
            node.looked_at, node.gone, node.oom_kills = time.monotonic(), node.gone | look.gone, look.oom_kills
            node.noticed = look.noticed

    def _lose(self, node: Node, why: str) -> None:
        with self._lock:
            node.lost = node.lost or why

    def _welcome(self, hellos: dict[str, tuple[Any, Any]]) -> None:
        """Start agents on machines that have joined: KubeRay replaces a lost pod, and engines move there. A lost machine that answers again
        was only out of reach: its ranks were given up, and it counts as a new machine."""
        import ray

        with self._lock:
            lost = {node.key for node in self._nodes.values() if node.lost}
        for key in worker_nodes():
            if key not in hellos and (key not in self._nodes or key in lost):
                agent = new_agent(key, self._target)
                if self._measured_as:
                    agent.measured.remote(self._measured_as)
                hellos[key] = agent, agent.hello.remote()
        for key, (agent, hello) in list(hellos.items()):
            if ray.wait([hello], timeout=0)[0]:
                hellos.pop(key)
                told = answer(hello)
                if key in lost:
                    ray.kill(self._nodes[key].agent)  # it may live, and would copy the same logs
                self._add(key, agent, told)

    # Logs

    def tail(self, source: str, lines: int) -> str:
        """The last lines of a source, from its machine; if the machine is gone, from the copied logs."""
        import ray

        with self._lock:
            node = self._nodes.get(self._sources.get(source, ""))
        if node is not None and not node.lost:
            try:
                return str(ray.get(node.agent.tail.remote(source, lines), timeout=_CALL_LIMIT_S))
            except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
                pass
        try:
            reader = LogReader(open_store(self._target.output), self._target.task, self._target.attempt)
            return hide(reader.tail(source, lines).text.rstrip("\n"), self._secrets)
        except StorageError:
            return ""

    def close(self) -> None:
        """Copy the rest of all logs, within a time limit, and end the agents."""
        import ray

        self._done.set()
        if self._thread.is_alive():
            self._thread.join(_CALL_LIMIT_S)
        nodes = self.living
        flushes = [node.agent.close.remote(_FLUSH_S) for node in nodes]
        if flushes:
            ray.wait(flushes, num_returns=len(flushes), timeout=_FLUSH_S + _CALL_LIMIT_S)
        for node in nodes:
            ray.kill(node.agent)
