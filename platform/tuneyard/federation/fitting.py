"""Equal pods, each inside one machine."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def pod_sizes(workers: int, gpus_per_node: int, *, cpu: bool, unit: int = 1) -> tuple[int, ...]:
    """Sizes of pod that `workers` divide into, largest first: ranks that share a machine speak faster. On cpu a pod per worker.

    A size is a multiple of `unit`. None fits: empty.
    """
    if cpu:
        return (unit,) if workers % unit == 0 and unit <= gpus_per_node else ()
    most = min(workers, gpus_per_node)
    return tuple(size for size in range(most, 0, -1) if workers % size == 0 and size % unit == 0)
