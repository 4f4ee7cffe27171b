"""The clusters of a hub as a map of nodes and GPUs, and the teams with quota and use. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape
from pydantic import ValidationError

from tuneyard.api import Cluster
from tuneyard.api.team import TeamGoal, TeamStatus
from tuneyard.api.wire import read
from tuneyard.cluster import HubCluster, Snapshot
from tuneyard.data.visible import visible

MOST_NODES = 1_000
"""Drawn of one cluster and SKU."""
_CELL, _GAP, _PER_ROW = 11, 3, 8


@dataclass(frozen=True)
class NodeMap:
    """The nodes of one SKU of a cluster. `left_out`: nodes beyond MOST_NODES."""

    sku: str
    nodes: int
    gpus: int
    held: int
    others: int
    down: int
    drawings: tuple[Markup, ...]
    left_out: int

    @property
    def free(self) -> int:
        return self.gpus - self.held - self.others - self.down


@dataclass(frozen=True)
class MappedCluster:
    cluster: HubCluster
    skus: tuple[NodeMap, ...]


@dataclass(frozen=True)
class TeamRow:
    """A team. Amounts are by SKU. `gpu_hours`, `budget`: of this calendar month."""

    name: str
    quota: Mapping[str, int]
    in_use: Mapping[str, int]
    borrowed: Mapping[str, int]
    gpu_hours: float
    budget: float | None
    cost: float
    problem: str = ""


def clusters_of(snapshot: Snapshot) -> list[MappedCluster]:
    """All clusters by name, with their nodes."""
    held = held_by_node(snapshot.jobs)
    raw = {item["metadata"]["name"]: item for item in snapshot.clusters}
    return [MappedCluster(cluster, _maps(raw[cluster.name], held.get(cluster.name, {}))) for cluster in snapshot.members()]


def held_by_node(jobs: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """GPUs that attempts hold now, by cluster and node."""
    found: dict[str, dict[str, int]] = {}
    for item in jobs:
        for attempt in (item.get("status") or {}).get("attempts") or []:
            placement = attempt.get("placement")
            if placement and not attempt.get("cleaned"):
                nodes = found.setdefault(str(placement.get("cluster")), {})
                for node, gpus in (placement.get("nodes") or {}).items():
                    nodes[node] = nodes.get(node, 0) + int(gpus)
    return found


def _maps(item: Mapping[str, Any], held: Mapping[str, int]) -> tuple[NodeMap, ...]:
    try:
        known = {key: item[key] for key in ("metadata", "spec", "status") if item.get(key) is not None}
        cluster = Cluster.model_validate(known, extra="ignore")
    except ValidationError:
        return ()  # `HubCluster.message` says so
    nodes = cluster.status.nodes if cluster.status is not None else []
    found = []
    for sku in dict.fromkeys(node.sku for node in nodes):
        own = [node for node in nodes if node.sku == sku]
        ready = [node for node in own if node.ready]
        others = sum(node.gpus - node.free for node in ready)
        drawings = tuple(
            _drawn(node.name, node.gpus, min(held.get(node.name, 0), node.gpus), node.gpus - node.free, node.ready)
            for node in own[:MOST_NODES]
        )
        taken = sum(min(held.get(node.name, 0), node.gpus) for node in ready)
        down = sum(node.gpus for node in own if not node.ready)
        left_out = max(0, len(own) - MOST_NODES)
        found.append(NodeMap(sku, len(own), sum(node.gpus for node in own), taken, others, down, drawings, left_out))
    return tuple(found)


def _drawn(name: str, gpus: int, held: int, others: int, ready: bool) -> Markup:
    """A node: a square per GPU, eight in a row."""
    said = f"{held} held, {others} of others, {max(0, gpus - held - others)} free" if ready else "not ready"
    columns = min(max(gpus, 1), _PER_ROW)
    rows = -(-max(gpus, 1) // _PER_ROW)
    width, height = columns * (_CELL + _GAP) - _GAP, rows * (_CELL + _GAP) - _GAP
    squares = []
    for index in range(min(gpus, 64)):
        kind = "down" if not ready else "held" if index < held else "other" if index < held + others else ""
        x, y = index % _PER_ROW * (_CELL + _GAP), index // _PER_ROW * (_CELL + _GAP)
        squares.append(f'<rect class="gpu {kind}" x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" rx="2"/>')
    label = escape(visible(f"{name}: {gpus} GPUs, {said}"))
    return Markup(
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
        f"<title>{label}</title>{''.join(squares)}</svg>"
    )


def teams_of(snapshot: Snapshot) -> list[TeamRow]:
    """The Team objects of the hub, by name."""
    return sorted((_team(item) for item in snapshot.teams), key=lambda team: team.name)


def _team(item: Mapping[str, Any]) -> TeamRow:
    name = str(item["metadata"]["name"])
    status = read(TeamStatus, item.get("status")).value
    try:
        goal, problem = TeamGoal.model_validate(item.get("spec") or {}, extra="ignore"), ""
    except ValidationError as error:
        goal, problem = TeamGoal(), f"its spec cannot be read: {error.errors(include_input=False)[0]['msg']}"
    return TeamRow(
        name=name,
        quota=goal.quota,
        in_use=status.in_use,
        borrowed={sku: count for sku, count in status.borrowed.items() if count},
        gpu_hours=status.gpu_hours_used,
        budget=goal.gpu_hours,
        cost=status.cost,
        problem=problem,
    )
