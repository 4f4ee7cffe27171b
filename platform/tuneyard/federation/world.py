"""What a scheduling decision is made from, and what it is: plain values, without a reference to any API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PRIORITIES = {"low": 0, "normal": 1, "high": 2, "urgent": 3}


@dataclass(frozen=True)
class Node:
    """`gpus`: worker slots that the node has, `free`: those that nothing holds."""

    name: str
    sku: str
    gpus: int
    free: int


@dataclass(frozen=True)
class SkuFacts:
    name: str
    gpus_per_node: int
    price_per_gpu_hour: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member cluster as it is now. `usable`: False where it is cordoned or cannot be reached; `why_not` says which."""

    name: str
    skus: tuple[SkuFacts, ...]
    nodes: tuple[Node, ...]
    usable: bool = True
    why_not: str = ""

    def sku(self, name: str) -> SkuFacts | None:
        return next((sku for sku in self.skus if sku.name == name), None)


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A task that waits for a placement. `worlds`: numbers of workers (GPUs) that would do, best first; `unit`: GPUs that must share a
    machine (an engine's tensor-parallel group). `skus` and `clusters` in order of preference; empty: any."""

    job: str
    task: str
    team: str
    priority: str
    created: float
    worlds: tuple[int, ...]
    unit: int = 1
    skus: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    avoid: frozenset[tuple[str, str]] = frozenset()
    """(cluster, node) that have failed this task: taken only where nothing else would ever do."""


@dataclass(frozen=True, kw_only=True)
class World:
    members: tuple[Member, ...]
    asks: tuple[Ask, ...]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Start the task there: `pods` worker pods of equal size; `nodes`: GPUs taken by node."""

    ask: Ask
    cluster: str
    sku: str
    workers: int
    pods: int
    nodes: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True, kw_only=True)
class Wait:
    """`reasons` by cluster."""

    ask: Ask
    reasons: Mapping[str, str] = field(hash=False)

    @property
    def reason(self) -> str:
        return "; ".join(f"{cluster}: {why}" for cluster, why in self.reasons.items()) or "there is no cluster"


@dataclass(frozen=True, kw_only=True)
class Fail:
    """No cluster could ever run it, even if all were empty."""

    ask: Ask
    reason: str


Decision = Place | Wait | Fail
