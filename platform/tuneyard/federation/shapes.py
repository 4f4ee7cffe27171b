"""What asks of one kind have in common: where they could go at all, and in which sizes of pod. Worked out once per kind, not per ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tuneyard.federation.fitting import pod_sizes
from tuneyard.federation.policy import Speed
from tuneyard.federation.pools import Indices, Pool, Pools
from tuneyard.federation.world import Ask

ShapeKey = tuple[tuple[int, ...], int, tuple[str, ...], tuple[str, ...], tuple[tuple[str, int], ...], frozenset[tuple[str, str]]]


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
        self.held_in = -1
        """The cycle in which it was found that what is free is kept for others, from whoever needs it for longer than `held_s`."""
        self.held_s = 0.0
        self._layout = -1
        self._fastest: tuple[int, float] = (-1, 1.0)
        self._skus: tuple[str, ...] = ()
        self._options: tuple[Option, ...] = ()
        self._least: tuple[Option, ...] = ()
        self._allowed: tuple[Pool, ...] = ()
        self._least_by_sku: dict[str, int] = {}
        self._first = 0
        self._only_on_failed = False

    @staticmethod
    def key(ask: Ask) -> ShapeKey:
        return (ask.worlds, ask.unit, ask.skus, ask.clusters, ask.least, ask.avoid)

    def options(self, pools: Pools) -> tuple[Option, ...]:
        """In order of preference: worlds as the ask lists them, larger pods first (ranks that share a machine speak faster)."""
        self._refresh(pools)
        return self._options

    def allowed(self, pools: Pools) -> tuple[Pool, ...]:
        """Pools that the ask lets in and where a world of it fits, usable or not."""
        self._refresh(pools)
        return self._allowed

    def too_small(self, pools: Pools) -> tuple[Pool, ...]:
        """Pools that the ask lets in and where no world of it fits: its model needs more GPUs of the SKU, or others."""
        return tuple(pool for pool in pools.all if self._lets_in(pool) and not self.fits(pool, max(self.ask.worlds)))

    def ever(self, pools: Pools) -> bool:
        """Whether any pool would do if nothing ran there. A member that cannot be seen might."""
        self._refresh(pools)
        return bool(self._least_by_sku)

    def least_by_sku(self, pools: Pools) -> Mapping[str, int]:
        """The smallest world that some pool of a SKU would take if nothing ran there; SKUs of which none would do are left out."""
        self._refresh(pools)
        return self._least_by_sku

    def first(self, pools: Pools) -> int:
        """The best world that some pool would take if nothing ran there: the one to keep room for. The best of all where none would do."""
        self._refresh(pools)
        return self._first

    def only_on_failed(self, pools: Pools) -> bool:
        """Whether nothing would ever do but nodes that have failed this ask."""
        self._refresh(pools)
        return self._only_on_failed

    def has_room(self, pools: Pools) -> bool:
        """Whether what is free would do anywhere, in pods however small: that costs little to know."""
        self._refresh(pools)
        for option in self._least:
            if not option.size:
                return True
            if pools.most_room(option.size) >= option.pods and (pools.room(option.size)[option.pools] >= option.pods).any():
                return True
        return False

    def skus(self, pools: Pools) -> tuple[str, ...]:
        """SKUs of the pools that the ask lets in, by name."""
        self._refresh(pools)
        return self._skus

    def avoided(self, pools: Pools, pool: Pool) -> Mapping[str, int]:
        """GPUs by node of a pool that are not to be used: nodes that have failed this ask, unless only they would ever do."""
        if not self.ask.avoid or self.only_on_failed(pools):
            return {}
        return {node: pool.base[node] for member, node in self.ask.avoid if member == pool.member and node in pool.base}

    def fastest(self, pools: Pools, speed: Speed) -> float:
        """The least share of `Ask.seconds` that an ask of this kind takes anywhere, with its first world."""
        if self._fastest[0] != pools.layout:
            ask = replace(self.ask, seconds=1.0)
            skus = {pool.sku.name for pool in self.allowed(pools)}
            self._fastest = (pools.layout, min((speed(ask, sku, ask.worlds[0]) for sku in skus), default=1.0))
        return self._fastest[1]

    def fits(self, pool: Pool, workers: int) -> bool:
        """Whether the ask's model fits on so many GPUs of a pool, as far as that is known."""
        return workers >= self.ask.fewest(pool.sku.name)

    def sizes(self, workers: int, pool: Pool) -> tuple[int, ...]:
        return pod_sizes(workers, pool.sku.gpus_per_node, cpu=pool.is_cpu, unit=self.ask.unit)

    def _refresh(self, pools: Pools) -> None:
        if self._layout == pools.layout:
            return
        self._layout = pools.layout
        self._allowed = tuple(pool for pool in pools.all if self._lets_in(pool) and self.fits(pool, max(self.ask.worlds)))
        self._skus = tuple(sorted({pool.sku.name for pool in self._allowed}))
        self._options = tuple(self._list())
        self._least = tuple(self._smallest())
        self._least_by_sku = {}
        possible: set[int] = set()
        for pool in self._allowed:
            worlds = [workers for workers in self.ask.worlds if self._would_do(pool, workers, frozenset())]
            possible.update(worlds)
            if worlds:
                self._least_by_sku[pool.sku.name] = min(*worlds, self._least_by_sku.get(pool.sku.name, worlds[0]))
        self._first = next((workers for workers in self.ask.worlds if workers in possible), self.ask.worlds[0])
        self._only_on_failed = bool(self.ask.avoid) and not any(
            self._would_do(pool, workers, self.ask.avoid) for pool in self._allowed for workers in self.ask.worlds
        )

    def _lets_in(self, pool: Pool) -> bool:
        ask = self.ask
        return pool.present and (not ask.skus or pool.sku.name in ask.skus) and (not ask.clusters or pool.member in ask.clusters)

    def _smallest(self) -> Iterator[Option]:
        """Of each SKU, the smallest world in the smallest pods."""
        for least in sorted({self.ask.smallest(sku) for sku in self._skus}):
            options = [option for option in self._options if option.workers == least]
            size = min((option.size for option in options), default=0)
            yield from (option for option in options if option.size == size)

    def _list(self) -> list[Option]:
        found: list[Option] = []
        for workers in self.ask.worlds:
            by_size: dict[int, list[int]] = {}
            for pool in self._allowed:
                if not self.fits(pool, workers):
                    continue
                for size in (self.sizes(workers, pool) if workers else (0,)) if pool.usable else ():
                    by_size.setdefault(size, []).append(pool.index)
            for size in sorted(by_size, reverse=True):
                found.append(Option(workers, workers // size if size else 0, size, np.array(by_size[size], np.intp)))
        return found

    def _would_do(self, pool: Pool, workers: int, without: frozenset[tuple[str, str]]) -> bool:
        if not self.fits(pool, workers):
            return False
        if not pool.usable:
            return not without  # a member that is away may come back; but a task does not wait for it that has a place elsewhere
        if workers == 0:
            return True
        gpus_of = [gpus for name, gpus in pool.total.items() if (pool.member, name) not in without]
        return any(sum(gpus // size for gpus in gpus_of) * size >= workers for size in self.sizes(workers, pool))
