"""The nodes of one member, counted anew only after a change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.api import Cluster, NodeInventory
from tuneyard_operators.hub.guard import reason_of
from tuneyard_operators.hub.inventory import hostname, inventory, is_ready, left_out

log = logging.getLogger(__name__)
Object = dict[str, Any]


@dataclass(frozen=True)
class Count:
    """The nodes of a member by its Cluster. Shared: not to be changed.

    `problem`: why nothing can be placed though the member is reached; `left_out`: usable nodes without a SKU, in words.
    """

    cluster: Cluster
    nodes: list[NodeInventory]
    problem: str = ""
    left_out: str = ""


class Capacity:
    """`nodes`, `foreign`: nodes of the member, and pods of others on them."""

    def __init__(self, nodes: Callable[[], Iterable[Object]], foreign: Callable[[], Iterable[Object]]) -> None:
        self.unready: set[str] = set()
        """Hostnames of nodes that do not answer."""
        self._nodes = nodes
        self._foreign = foreign
        self._count: Count | None = None

    def count(self, cluster: Cluster) -> Count:
        """The nodes as they are now; the same object until something changes."""
        if self._count is None or self._count.cluster is not cluster:
            try:
                counted = inventory(cluster, self._nodes(), self._foreign())
                self._count = Count(cluster, counted, left_out=left_out(cluster, self._nodes()))
            except Exception as error:  # one broken member must not stop the others
                log.exception("the nodes of member %s cannot be counted", cluster.metadata.name)
                self._count = Count(cluster, [], problem=f"its nodes cannot be counted: {reason_of(error)}")
        return self._count

    def take_in(self, old: Object | None, new: Object | None) -> bool:
        """A node, or a pod of others, was made, has changed, or is gone. True if there may be another number of free GPUs."""
        if old is not None and new is not None and _without_version(old) == _without_version(new):
            return False
        self._count = None
        return True

    def take_in_node(self, old: Object | None, new: Object | None) -> None:
        """Note whether a node answers."""
        if old is not None:
            self.unready.discard(hostname(old))
        if new is not None and not is_ready(new):
            self.unready.add(hostname(new))


def _without_version(item: Mapping[str, Any]) -> Object:
    return {**item, "metadata": {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}}
