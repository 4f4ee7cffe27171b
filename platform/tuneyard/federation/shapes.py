"""Shapes of asks: asks with equal constraints share one shape, and what follows from it is computed once per layout of the pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from tuneyard.federation.policy import Speed
from tuneyard.federation.pools import Indices, Layout, Pool, Pools
from tuneyard.federation.world import Ask

ShapeKey = tuple[tuple[int, ...], int, tuple[str, ...], tuple[str, ...], tuple[tuple[str, int], ...], frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class Option:
    """A way to run a gang: `pods` pods of `size` GPUs each, in any one of `pools`."""

    workers: int
    pods: int
    size: int
    pools: Indices


class Shape:
    """The constraints that asks of one kind share. `ask` is one of these asks."""

    def __init__(self, ask: Ask, speed: Speed) -> None:
        self.ask = ask
        self._speed = speed
        self._feasibility: Feasibility | None = None

    @staticmethod
    def key(ask: Ask) -> ShapeKey:
        return (ask.worlds, ask.unit, ask.skus, ask.clusters, ask.least, ask.avoid)

    def on(self, layout: Layout) -> Feasibility:
        """How this shape fits a layout."""
        if self._feasibility is None or self._feasibility.layout is not layout:
            self._feasibility = Feasibility(self.ask, layout, self._speed)
        return self._feasibility


class Feasibility:
    """How asks of one shape fit a layout, whatever runs there.

    `allowed`: pools that the ask admits and where one of its numbers of workers fits, usable or not. `skus`: the SKUs of these pools, by
    name. `least_by_sku`: the smallest number of workers that some pool of a SKU could run; SKUs without such a pool are left out. `first`:
    the best number of workers that some pool could run, for which room is reserved.
    """

    def __init__(self, ask: Ask, layout: Layout, speed: Speed) -> None:
        self.ask = ask
        self.layout = layout
        self._speed = speed
        self._fewest = {sku: ask.fewest(sku) for sku in layout.by_sku}
        self.allowed = tuple(pool for pool in layout.pools if self._admits(pool) and self.fits(pool, max(ask.worlds)))
        self.skus = tuple(sorted({pool.sku.name for pool in self.allowed}))
        self.options = tuple(self._options())
        """Options by preference: numbers of workers as the ask lists them, then larger pods, whose ranks share a node and its bandwidth."""
        self.smallest = tuple(self._smallest())
        """Options that fit wherever any option fits: for each SKU the fewest workers, in the smallest pods."""
        self.least_by_sku: dict[str, int] = {}
        possible: set[int] = set()
        for pool in self.allowed:
            worlds = [workers for workers in ask.worlds if self._could_run(pool, workers, frozenset())]
            possible.update(worlds)
            if worlds:
                self.least_by_sku[pool.sku.name] = min(*worlds, self.least_by_sku.get(pool.sku.name, worlds[0]))
        self.first = next((workers for workers in ask.worlds if workers in possible), ask.worlds[0])
        self._only_on_failed = bool(ask.avoid) and not any(
            self._could_run(pool, workers, ask.avoid) for pool in self.allowed for workers in ask.worlds
        )

    def too_small(self) -> tuple[Pool, ...]:
        """Pools that the ask admits and where its model fits with none of its numbers of workers."""
        return tuple(pool for pool in self.layout.pools if self._admits(pool) and not self.fits(pool, max(self.ask.worlds)))

    def has_room(self, pools: Pools) -> bool:
        """Whether any option fits into free GPUs. Quota and reservations are not considered."""
        return any(not option.size or len(pools.with_room(option.pods, option.size, option.pools)) for option in self.smallest)

    def avoided(self, pool: Pool) -> Mapping[str, int]:
        """GPUs by node of a pool that the ask does not use: nodes that have failed it, unless it could run on no other nodes."""
        if not self.ask.avoid or self._only_on_failed:
            return {}
        return {node: pool.base[node] for member, node in self.ask.avoid if member == pool.member and node in pool.base}

    @cached_property
    def fastest(self) -> float:
        """The least share of `Ask.seconds` that an ask takes on any SKU, with its first number of workers."""
        ask = replace(self.ask, seconds=1.0)
        return min((self._speed(ask, sku, ask.worlds[0]) for sku in {pool.sku.name for pool in self.allowed}), default=1.0)

    def fits(self, pool: Pool, workers: int) -> bool:
        """Whether the model fits on a number of GPUs of a pool, as far as that is known."""
        return workers >= self._fewest[pool.sku.name]

    def sizes(self, workers: int, pool: Pool) -> tuple[int, ...]:
        """Sizes of pods for a number of workers, largest first."""
        return pod_sizes(workers, pool.sku.gpus_per_node, cpu=pool.is_cpu, unit=self.ask.unit)

    def _admits(self, pool: Pool) -> bool:
        ask = self.ask
        return pool.present and (not ask.skus or pool.sku.name in ask.skus) and (not ask.clusters or pool.member in ask.clusters)

    def _smallest(self) -> Iterator[Option]:
        for least in sorted({self.ask.smallest(sku) for sku in self.skus}):
            options = [option for option in self.options if option.workers == least]
            size = min((option.size for option in options), default=0)
            yield from (option for option in options if option.size == size)

    def _options(self) -> Iterator[Option]:
        for workers in self.ask.worlds:
            by_size: dict[int, list[int]] = {}
            for pool in self.allowed:
                if pool.usable and self.fits(pool, workers):
                    for size in self.sizes(workers, pool) if workers else (0,):
                        by_size.setdefault(size, []).append(pool.index)
            for size in sorted(by_size, reverse=True):
                yield Option(workers, workers // size if size else 0, size, np.array(by_size[size], np.intp))

    def _could_run(self, pool: Pool, workers: int, without: frozenset[tuple[str, str]]) -> bool:
        if not self.fits(pool, workers):
            return False
        if not pool.usable:
            return not without  # an unusable member may come back, but a task that has a place elsewhere does not wait for it
        if workers == 0:
            return True
        gpus_of = [gpus for name, gpus in pool.total.items() if (pool.member, name) not in without]
        return any(sum(gpus // size for gpus in gpus_of) * size >= workers for size in self.sizes(workers, pool))


@lru_cache(maxsize=4096)
def pod_sizes(workers: int, gpus_per_node: int, *, cpu: bool, unit: int = 1) -> tuple[int, ...]:
    """Sizes of equal pods into which `workers` divide, largest first: ranks on one node communicate faster. On cpu each worker has a pod.

    A size is a multiple of `unit`, and at most one node. Empty where no size fits.
    """
    if cpu:
        return (unit,) if workers % unit == 0 and unit <= gpus_per_node else ()
    most = min(workers, gpus_per_node)
    return tuple(size for size in range(most, 0, -1) if workers % size == 0 and size % unit == 0)
