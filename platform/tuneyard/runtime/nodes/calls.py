"""One machine of an attempt, and the calls to the agent on it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import Blame, FailureKind, JobFailed
from tuneyard.runtime.nodes.agent import AGENT_OPTIONS, LogTarget, NodeAgent
from tuneyard.runtime.nodes.pod import Pod

START_LIMIT_S = 120.0


@dataclass
class Node:
    """A machine of the cluster. `lost`: why it counts as gone; empty while it lives."""

    key: str
    """Ray's id of the machine."""
    agent: Any
    pod: Pod
    looked_at: float
    lost: str = ""
    gone: frozenset[int] = frozenset()
    oom_kills: int = 0
    oom_kills_before: int = 0
    noticed: bool = False
    pids: list[int] = field(default_factory=list)


def worker_nodes() -> list[str]:
    """Ray's ids of the machines that ranks and engines can run on."""
    import ray

    return [node["NodeID"] for node in ray.nodes() if node["Alive"] and (node["Resources"].get("CPU") or node["Resources"].get("GPU"))]


def new_agent(key: str, target: LogTarget) -> Any:
    """A new agent on the machine `key`, which copies logs to `target`."""
    return on_node(NodeAgent, key, AGENT_OPTIONS).remote(target)


def on_node(actor: type, key: str, options: dict[str, Any]) -> Any:
    """An actor class bound to one machine of the cluster."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return ray.remote(actor).options(**options, scheduling_strategy=NodeAffinitySchedulingStrategy(key, soft=False))


def answer(reference: Any, pod: Pod | None = None, *, limit_s: float = START_LIMIT_S) -> Any:
    """The answer of an agent. Raises JobFailed if the agent is gone or does not answer."""
    import ray

    who = str(pod or "a machine of the Ray cluster")
    try:
        return ray.get(reference, timeout=limit_s)
    except ray.exceptions.RayActorError as error:
        why = (str(error).strip().splitlines() or ["no reason given"])[-1].strip()
        raise machine_lost(f"{who} was lost before the ranks began: {why}", pod) from error
    except ray.exceptions.GetTimeoutError as error:
        raise machine_lost(f"{who} did not answer within {limit_s:g} s: its disk may hang", pod) from error


def machine_lost(cause: str, pod: Pod | None = None) -> JobFailed:
    """The error of an attempt that lost a machine before its ranks began."""
    blame = Blame(node=pod.node) if pod else None
    return JobFailed(cause, "look at its pod: kubectl describe pod", kind=FailureKind.NODE_LOST, blame=blame)


def skew_s(node: Node) -> float:
    """Seconds that a machine's clock is ahead of this machine's: its time minus the middle of the call (Cristian 1989)."""
    before = time.time()
    theirs = float(answer(node.agent.clock.remote(), node.pod))
    return theirs - (before + time.time()) / 2
