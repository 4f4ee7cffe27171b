"""What scheduling is counted in: equal pods, each inside one machine; and predicted ends."""

from __future__ import annotations

from functools import lru_cache

_SOON_S = 60.0
"""How long an attempt that has overrun its prediction is thought to need still, at least."""


@lru_cache(maxsize=4096)
def pod_sizes(workers: int, gpus_per_node: int, *, cpu: bool, unit: int = 1) -> tuple[int, ...]:
    """Sizes of pod that `workers` divide into, largest first: ranks that share a machine speak faster. On cpu a pod per worker.

    A size is a multiple of `unit`. None fits: empty.
    """
    if cpu:
        return (unit,) if workers % unit == 0 and unit <= gpus_per_node else ()
    most = min(workers, gpus_per_node)
    return tuple(size for size in range(most, 0, -1) if workers % size == 0 and size % unit == 0)


def expected_end(ends: float, now: float) -> float:
    """When what was predicted to end at `ends` is thought to: once it has overrun, after as long again."""
    return ends if ends > now else now + max(_SOON_S, now - ends)
