"""Builds the status of a Cluster from the hub's record of the member, and reads back the part that outlives a hub. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from tuneyard.api import ClusterStatus, NodeInventory
from tuneyard.api.wire import read
from tuneyard_operators.hub.guard import with_stalled
from tuneyard_operators.hub.member import Member
from tuneyard_operators.hub.member_records import MemberRecord, Written
from tuneyard_operators.hub.status_size import shortened

Object = dict[str, Any]
NO_CLUSTER: Mapping[str, Any] = {"metadata": {}}
_KEPT = ("heartbeat", "returnedAt", "conditions")


def stored_status(item: Mapping[str, Any]) -> ClusterStatus:
    """The readable part of a Cluster's stored status, without its nodes. Another version of the hub may have written it."""
    status = item.get("status")
    return read(ClusterStatus, {name: status[name] for name in _KEPT if name in status} if isinstance(status, dict) else {}).value


def status_of(item: Mapping[str, Any], record: MemberRecord, held_out: str, now: datetime) -> Object:
    """The next status of a Cluster. `held_out`: why a reachable member gets no new gangs; empty if it gets them."""
    member = record.link.member
    if member is None:
        return _unconnected(item, record.link.problem, now)
    count = member.capacity.count(member.cluster) if member.listed else None
    problem = record.link.problem or (count.problem if count is not None else "")
    left_out = count.left_out if count is not None else ""
    words = member.heartbeat.error or (held_out if member.reachable else "") or problem or member.unreadable or left_out
    status: Object = {"healthy": member.reachable, "message": shortened(words), "heartbeat": member.heartbeat.last}
    status["conditions"] = _conditions(item, problem, now)
    if record.outages.returns is not None:
        status["returnedAt"] = record.outages.returns
    return status | _inventory(record.written, count.nodes) if count is not None else status


def _unconnected(item: Mapping[str, Any], problem: str, now: datetime) -> Object:
    return {
        "healthy": False,
        "message": shortened(problem or "not connected yet"),
        "heartbeat": stored_status(item).heartbeat,
        "conditions": _conditions(item, problem, now),
    }


def _conditions(item: Mapping[str, Any], problem: str, now: datetime) -> list[Any]:
    stored = [each.model_dump(mode="json", by_alias=True) for each in stored_status(item).conditions]
    return with_stalled(stored, problem, item["metadata"].get("generation", 0), now)


def _inventory(written: Written, nodes: list[NodeInventory]) -> Object:
    """The part of the status that shows the nodes, rebuilt only after a new count."""
    if written.nodes is not nodes:
        free = ", ".join(f"{sku} {left}/{total}" for sku, (left, total) in by_sku(nodes).items())
        written.nodes = nodes
        written.shown = {"nodes": [node.model_dump(mode="json", by_alias=True) for node in nodes], "free": free}
    return written.shown


def by_sku(nodes: Iterable[NodeInventory]) -> dict[str, tuple[int, int]]:
    """Free and total slots of each SKU."""
    found: dict[str, tuple[int, int]] = {}
    for node in nodes:
        free, total = found.get(node.sku, (0, 0))
        found[node.sku] = (free + node.free, total + node.gpus)
    return dict(sorted(found.items()))


def unusable(member: Member, held_out: str) -> str:
    """Why no gang may start on a member; empty if gangs may."""
    return held_out if member.reachable else member.heartbeat.error or "its objects have not all been listed yet"
