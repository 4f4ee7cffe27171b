"""Whole gangs on nodes: equal pods, each inside one machine, all placed or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuneyard.federation.world import Node


@dataclass(frozen=True)
class Gang:
    """`size` GPUs in each of `pods` pods, on `nodes` (GPUs taken by node)."""

    pods: int
    size: int
    nodes: dict[str, int]


def pod_sizes(workers: int, gpus_per_node: int, *, cpu: bool, unit: int = 1) -> tuple[int, ...]:
    """Sizes of pod that `workers` divide into, largest first: ranks that share a machine speak faster. On cpu a pod per worker.

    A size is a multiple of `unit`. None fits: empty.
    """
    if cpu:
        return (unit,) if workers % unit == 0 and unit <= gpus_per_node else ()
    most = min(workers, gpus_per_node)
    return tuple(size for size in range(most, 0, -1) if workers % size == 0 and size % unit == 0)


def fit(workers: int, sizes: Iterable[int], nodes: Sequence[Node]) -> Gang | None:
    """The gang with the largest pods that finds room in what is free on `nodes`, or None.

    Fullest nodes first, so that empty machines stay whole for those who need them. No workers need no node.
    """
    if workers == 0:
        return Gang(0, 0, {})
    for size in sizes:
        left = workers // size
        taken: dict[str, int] = {}
        for node in sorted(nodes, key=lambda node: (node.free, node.name)):
            pods = min(left, node.free // size)
            if pods:
                taken[node.name] = pods * size
                left -= pods
            if left == 0:
                return Gang(workers // size, size, taken)
    return None
