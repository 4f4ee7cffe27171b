"""The inventory of one member's nodes, recounted only after a change."""

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
    """The nodes of a member, counted for one version of its Cluster. Shared: callers must not change it.

    `problem`: why the nodes cannot be counted; `left_out`: usable nodes without a SKU, in words.
    """

    cluster: Cluster
    nodes: list[NodeInventory]
    problem: str = ""
    left_out: str = ""


class Capacity:
    """`nodes`: the member's nodes; `foreign`: the pods on them that are not of this hub."""

    def __init__(self, nodes: Callable[[], Iterable[Object]], foreign: Callable[[], Iterable[Object]]) -> None:
        self.unready: set[str] = set()
        """Hostnames of nodes that are not ready."""
        self._nodes = nodes
        self._foreign = foreign
        self._count: Count | None = None

    def count(self, cluster: Cluster) -> Count:
        """The present count; the same object until something changes."""
        if self._count is None or self._count.cluster is not cluster:
            try:
                counted = inventory(cluster, self._nodes(), self._foreign())
                self._count = Count(cluster, counted, left_out=left_out(cluster, self._nodes()))
            except Exception as error:  # one broken member must not stop the others
                log.exception("the nodes of member %s cannot be counted", cluster.metadata.name)
                self._count = Count(cluster, [], problem=f"its nodes cannot be counted: {reason_of(error)}")
        return self._count

    def take_in(self, old: Object | None, new: Object | None) -> bool:
        """Take in a node or a foreign pod that was created, changed or deleted. True if the number of free GPUs may have changed."""
        if old is not None and new is not None and _without_version(old) == _without_version(new):
            return False
        self._count = None
        return True

    def take_in_node(self, old: Object | None, new: Object | None) -> None:
        """Record whether a node is ready."""
        if old is not None:
            self.unready.discard(hostname(old))
        if new is not None and not is_ready(new):
            self.unready.add(hostname(new))


def _without_version(item: Mapping[str, Any]) -> Object:
    return {**item, "metadata": {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}}
