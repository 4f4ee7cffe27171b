"""The hub's memory of each Cluster, beside the object: one record per Cluster, in one table, forgotten when the Cluster is deleted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import NodeInventory
from tuneyard_operators.hub.member import Member

Object = dict[str, Any]
_NEVER = -1e9


@dataclass(slots=True)
class Link:
    """The connection to a member. `Members` keeps it."""

    member: Member | None = None
    mark: tuple[str, int] | None = None
    """Uid and generation of the Cluster that `member` was made from."""
    tried_s: float = _NEVER
    problem: str = ""
    """Why the last try to connect failed; empty if it did not."""


@dataclass(slots=True)
class Outages:
    """Returns of a member from outages."""

    returns: list[str] | None = None
    """Times of recent returns; None until they are read from the Cluster's status."""
    away_since_s: float | None = None


@dataclass(slots=True)
class Written:
    """The status of the Cluster as the hub last wrote it."""

    written_s: float = _NEVER
    status: Object = field(default_factory=dict)
    nodes: list[NodeInventory] | None = None
    """The inventory that `shown` was made from."""
    shown: Object = field(default_factory=dict)
    """The part of a status that shows the inventory."""


@dataclass(slots=True)
class MemberRecord:
    link: Link = field(default_factory=Link)
    outages: Outages = field(default_factory=Outages)
    written: Written = field(default_factory=Written)
