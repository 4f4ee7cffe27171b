"""Queues of waiting asks: one for each priority, shape and team, in the order of the policy. A cycle looks at the heads of queues.

Asks with equal constraints share a `Shape`. How a shape fits the pools and nodes (its `Feasibility`) is computed once per layout.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from tuneyard.federation.policy import Policy, Speed
from tuneyard.federation.pools import Indices, Key, Layout, Pool
from tuneyard.federation.world import PRIORITIES, Ask

ShapeKey = tuple[tuple[int, ...], int, tuple[str, ...], tuple[str, ...], tuple[tuple[str, int], ...], frozenset[tuple[str, str]]]
OWED_FIRST_S = 1e11
"""Moves an ask to which freed GPUs are owed before all others of its priority, in any order."""


class Entry(NamedTuple):
    """`rank` orders asks of one priority and team, in seconds since the epoch or of GPU-time. No two entries are equal in job and task, so
    that a comparison never reaches the ask."""

    rank: float
    created: float
    job: str
    task: str
    ask: Ask

    @property
    def key(self) -> Key:
        return self.job, self.task


class Queue:
    """Asks of one priority, team and shape, by rank. `infeasible`: none of them could ever run."""

    def __init__(self, shape: Shape, team: str) -> None:
        self.shape = shape
        self.team = team
        self.entries: list[Entry] = []
        self.infeasible = False
        self.refused: set[Key] = set()
        """Asks that have been refused as infeasible since the last change of layouts or teams."""
        self._seconds: list[float] = []

    @property
    def shortest_s(self) -> float:
        """The least predicted duration of its asks, with the first number of workers on the reference SKU."""
        return self._seconds[0]

    def add(self, entry: Entry) -> None:
        insort(self.entries, entry)
        insort(self._seconds, entry.ask.seconds)

    def remove(self, entry: Entry) -> None:
        del self.entries[bisect_left(self.entries, entry)]
        del self._seconds[bisect_left(self._seconds, entry.ask.seconds)]
        self.refused.discard(entry.key)


class Group:
    """Queues of one priority and shape, by team. Where no free GPUs fit one of them, none fit the others."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.queues: dict[str, Queue] = {}


class Queues:
    """All queues."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._shapes: dict[ShapeKey, Shape] = {}
        self._groups: dict[int, dict[ShapeKey, Group]] = {}
        self._entries: dict[Key, tuple[Queue, Entry]] = {}
        self._new: list[Queue] = []
        self._infeasible: list[Queue] = []
        self._stamp: object = None

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Ask]:
        return (entry.ask for _, entry in self._entries.values())

    def get(self, key: Key) -> tuple[Queue, Entry] | None:
        return self._entries.get(key)

    def add(self, ask: Ask) -> None:
        """Add an ask that is not in a queue."""
        queue = self._queue(ask)
        entry = Entry(self._rank(ask), ask.created, ask.job, ask.task, ask)
        queue.add(entry)
        self._entries[entry.job, entry.task] = (queue, entry)

    def remove(self, key: Key) -> Ask | None:
        """Remove an ask. None: it is in no queue."""
        found = self._entries.pop(key, None)
        if found is None:
            return None
        queue, entry = found
        queue.remove(entry)
        if not queue.entries:
            self._close(PRIORITIES[entry.ask.priority], Shape.key(entry.ask), queue.team)
        return entry.ask

    def by_priority(self) -> list[list[Group]]:
        """Groups of each priority, highest priority first."""
        return [list(self._groups[priority].values()) for priority in sorted(self._groups, reverse=True)]

    def all(self) -> Iterator[Queue]:
        return (queue for groups in self._groups.values() for group in groups.values() for queue in group.queues.values())

    def to_refuse(self, stamp: object, is_feasible: Callable[[Queue], bool]) -> list[tuple[Entry, Queue]]:
        """Infeasible asks that have not been refused, by age. They count as refused from now on. New queues are judged by `is_feasible`,
        and all queues where `stamp` is new."""
        if stamp != self._stamp:
            self._stamp, self._new, self._infeasible = stamp, list(self.all()), []
        for queue in self._new:
            if queue.entries:
                queue.infeasible = not is_feasible(queue)
                queue.refused.clear()
        self._infeasible = [queue for queue in (*self._infeasible, *self._new) if queue.entries and queue.infeasible]
        self._new = []
        found = [(entry, queue) for queue in self._infeasible for entry in queue.entries if entry.key not in queue.refused]
        for entry, queue in found:
            queue.refused.add(entry.key)
        return sorted(found, key=lambda each: (each[0].created, each[0].key))

    def _queue(self, ask: Ask) -> Queue:
        key = Shape.key(ask)
        groups = self._groups.setdefault(PRIORITIES[ask.priority], {})
        group = groups.get(key)
        if group is None:
            shape = self._shapes.get(key)
            if shape is None:
                shape = self._shapes[key] = Shape(ask, self._policy.speed)
            group = groups[key] = Group(shape)
        queue = group.queues.get(ask.team)
        if queue is None:
            queue = group.queues[ask.team] = Queue(group.shape, ask.team)
            self._new.append(queue)
        return queue

    def _close(self, priority: int, key: ShapeKey, team: str) -> None:
        groups = self._groups[priority]
        del groups[key].queues[team]
        if not groups[key].queues:
            del groups[key]
            if not any(key in others for others in self._groups.values()):
                del self._shapes[key]
        if not groups:
            del self._groups[priority]

    def _rank(self, ask: Ask) -> float:
        if ask.owed_since is not None:
            return ask.owed_since - OWED_FIRST_S
        if self._policy.order == "age":
            return ask.created
        size = ask.seconds * max(1, ask.worlds[0])
        if self._policy.order == "shortest":
            return size
        stretched_s, longest_s = self._policy.stretch * size, self._policy.longest_s
        return ask.created + longest_s * stretched_s / (longest_s + stretched_s)


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
        self._fewest = {sku: ask.fewest(sku) for sku in layout.by_sku} if ask.least else {}
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
        return workers >= self._fewest.get(pool.sku.name, 0)

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
