"""What asks of one kind have in common: where they could go at all, and in which sizes of pod. Worked out once per kind, not per ask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuneyard.federation.fitting import pod_sizes
from tuneyard.federation.pools import Indices, Pool, Pools
from tuneyard.federation.world import Ask

ShapeKey = tuple[tuple[int, ...], int, tuple[str, ...], tuple[str, ...], frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class Option:
    """`pods` pods of `size` GPUs each, in any of these pools."""

    workers: int
    pods: int
    size: int
    pools: Indices


class Shape:
    """A kind of ask. What it says holds for one layout of the pools, and is worked out anew for another."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        """One of them: those of its fields that make the key."""
        self.blocked_in = -1
        """The cycle in which it was found that nothing free would do."""
        self._layout = -1
        self._options: tuple[Option, ...] = ()
        self._allowed: tuple[Pool, ...] = ()
        self._ever = False
        self._only_on_failed = False

    @staticmethod
    def key(ask: Ask) -> ShapeKey:
        return (ask.worlds, ask.unit, ask.skus, ask.clusters, ask.avoid)

    def options(self, pools: Pools) -> tuple[Option, ...]:
        """In order of preference: larger worlds first, larger pods first (ranks that share a machine speak faster)."""
        self._refresh(pools)
        return self._options

    def allowed(self, pools: Pools) -> tuple[Pool, ...]:
        """Pools that the ask lets in, usable or not."""
        self._refresh(pools)
        return self._allowed

    def ever(self, pools: Pools) -> bool:
        """Whether any pool would do if nothing ran there. A member that cannot be seen might."""
        self._refresh(pools)
        return self._ever

    def only_on_failed(self, pools: Pools) -> bool:
        """Whether nothing would ever do but nodes that have failed this ask."""
        self._refresh(pools)
        return self._only_on_failed

    def sizes(self, workers: int, pool: Pool) -> tuple[int, ...]:
        return pod_sizes(workers, pool.sku.gpus_per_node, cpu=pool.is_cpu, unit=self.ask.unit)

    def _refresh(self, pools: Pools) -> None:
        if self._layout == pools.layout:
            return
        self._layout = pools.layout
        self._allowed = tuple(pool for pool in pools.all if self._lets_in(pool))
        self._options = tuple(self._list())
        self._ever = any(self._would_do(pool, frozenset()) for pool in self._allowed)
        self._only_on_failed = bool(self.ask.avoid) and not any(self._would_do(pool, self.ask.avoid) for pool in self._allowed)

    def _lets_in(self, pool: Pool) -> bool:
        return (not self.ask.skus or pool.sku.name in self.ask.skus) and (not self.ask.clusters or pool.member in self.ask.clusters)

    def _list(self) -> list[Option]:
        found: list[Option] = []
        for workers in self.ask.worlds:
            by_size: dict[int, list[int]] = {}
            for pool in self._allowed:
                for size in (self.sizes(workers, pool) if workers else (0,)) if pool.usable else ():
                    by_size.setdefault(size, []).append(pool.index)
            for size in sorted(by_size, reverse=True):
                found.append(Option(workers, workers // size if size else 0, size, np.array(by_size[size], np.intp)))
        return found

    def _would_do(self, pool: Pool, without: frozenset[tuple[str, str]]) -> bool:
        if not pool.usable:
            return not without  # a member that is away may come back; but a task does not wait for it that has a place elsewhere
        for workers in self.ask.worlds:
            if workers == 0:
                return True
            for size in self.sizes(workers, pool):
                if sum(gpus // size for name, gpus in pool.total.items() if (pool.member, name) not in without) * size >= workers:
                    return True
        return False
