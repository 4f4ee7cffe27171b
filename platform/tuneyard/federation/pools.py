"""Free GPUs of all members, kept so that "where is room for so many pods of this size?" costs the same for one pool as for hundreds.

A pool is the machines of one SKU in one member. Beside each pool stands how many of its nodes have 0, 1, 2 … GPUs free: the number of pods
of size `s` that find room is then a product with `floor(free / s)`, for all pools at once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tuneyard.federation.world import Member, Running, SkuFacts

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]
Counts = npt.NDArray[np.int32]
Key = tuple[str, str]
"""Job and task."""


class Pool:
    """`total`: GPUs by node; `base`: those that others leave; `free`: those that nothing holds; `running`: attempts by predicted end."""

    def __init__(self, index: int, member: str, sku: SkuFacts) -> None:
        self.index = index
        self.member = member
        self.sku = sku
        self.present = False
        """Its member is there and has such machines; False where only attempts are left of it."""
        self.usable = True
        self.why_not = ""
        self.near: tuple[str, ...] = ()
        self.total: dict[str, int] = {}
        self.base: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.free: dict[str, int] = {}
        self.by_free: list[list[str]] = []
        self.running: list[tuple[float, str, str]] = []
        self.attempts: dict[Key, Running] = {}
        self.stopping = 0
        """GPUs of attempts that have been asked to go."""
        self.version = 0
        self._teams: tuple[int, frozenset[str]] = (-1, frozenset())

    def teams(self) -> frozenset[str]:
        """Those of which anything runs here."""
        if self._teams[0] != self.version:
            self._teams = (self.version, frozenset(attempt.team for attempt in self.attempts.values()))
        return self._teams[1]

    @property
    def is_cpu(self) -> bool:
        return self.sku.name == "cpu"

    def room(self, size: int, without: Mapping[str, int]) -> int:
        """Pods of this size that find room in what is free. `without`: GPUs by node not to touch."""
        room = sum(len(names) * (free // size) for free, names in enumerate(self.by_free))
        for name, gpus in without.items():
            free = self.free.get(name, 0)
            room -= free // size - max(0, free - gpus) // size
        return room

    def pick(self, pods: int, size: int, without: Mapping[str, int]) -> dict[str, int]:
        """GPUs by node for so many pods: fullest nodes first, so that empty machines stay whole. `without`: GPUs not to touch."""
        taken: dict[str, int] = {}
        left = pods
        for free in range(size, len(self.by_free)):
            for name in self.by_free[free]:
                room = free - without.get(name, 0) if without else free
                count = min(left, room // size)
                if count > 0:
                    taken[name] = count * size
                    left -= count
                    if not left:
                        return taken
        raise AssertionError("picked where there is no room")


class Pools:
    """All pools. `counts[p, f]`: nodes of pool `p` with `f` free GPUs."""

    def __init__(self) -> None:
        self.all: list[Pool] = []
        self.members: dict[str, Member] = {}
        self.layout = 0
        """Changes when pools, their usability or what their nodes have changes: what was said of "ever" is void then."""
        self.changes = 0
        """How often any pool has changed; a pool's version is the number of its last change."""
        self.changed = 0
        """Grows whenever a node has more or fewer GPUs free."""
        self.counts: Counts = np.zeros((0, 9), np.int32)
        self._by_name: dict[tuple[str, str], Pool] = {}
        self._weights: dict[int, Counts] = {}
        self._room: dict[int, Counts] = {}
        self._most_room: dict[int, tuple[int, int]] = {}
        self._refreshed = -1
        self._capacity: Mapping[str, int] = {}
        self._by_sku: Mapping[str, Mask] = {}
        self._whole_room: dict[int, Counts] = {}

    def get(self, member: str, sku: str) -> Pool | None:
        return self._by_name.get((member, sku))

    def of(self, member: str) -> Iterator[Pool]:
        return (pool for pool in self.all if pool.member == member)

    def set_member(self, member: Member) -> None:
        """Take in a member as it is now."""
        before = self.members.get(member.name)
        if before == member:
            return
        self.members[member.name] = member
        if before is None or _layout_of(before) != _layout_of(member):
            self.layout += 1
        nodes: dict[str, dict[str, tuple[int, int]]] = {sku.name: {} for sku in member.skus}
        for node in member.nodes:
            nodes.setdefault(node.sku, {})[node.name] = (node.gpus, node.free)
        for pool in self.of(member.name):
            if pool.sku.name not in nodes:
                nodes[pool.sku.name] = {}
        listed = {*(sku.name for sku in member.skus), *(node.sku for node in member.nodes)}
        for name, found in nodes.items():
            most = max((gpus for gpus, _ in found.values()), default=1)
            facts = member.sku(name) or SkuFacts(name, most)
            self._set_pool(member, facts, found, present=name in listed)

    def remove_member(self, name: str) -> None:
        """A member that is gone: nothing of it is usable."""
        member = self.members.pop(name, None)
        if member is None:
            return
        self.layout += 1
        for pool in self.of(name):
            for node in list(pool.base):
                self._move(pool, node, None)
            pool.total, pool.base = {}, {}
            pool.present, pool.usable, pool.why_not = False, False, "was removed"
            self._touch(pool)

    def snapshot(self) -> Iterator[Member]:
        """Members as they are now: of each node, what neither others nor attempts hold."""
        for member in self.members.values():
            nodes = []
            for node in member.nodes:
                pool = self._by_name[member.name, node.sku]
                nodes.append(replace(node, free=pool.base[node.name] - pool.held.get(node.name, 0)))
            yield replace(member, nodes=tuple(nodes))

    def hold(self, attempt: Running) -> None:
        """Count an attempt's GPUs as taken; one that is held already is replaced."""
        key = (attempt.job, attempt.task)
        pool = self._pool(attempt.cluster, attempt.sku)
        before = pool.attempts.get(key)
        pool.stopping += attempt.stopping * attempt.gpus
        if before is not None:
            pool.stopping -= before.stopping * before.gpus
            self._unlist(pool, before)
            if before.nodes != attempt.nodes:
                self._take(pool, before.nodes, -1)
                self._take(pool, attempt.nodes, 1)
        else:
            self._take(pool, attempt.nodes, 1)
        pool.attempts[key] = attempt
        insort(pool.running, (attempt.ends, *key))
        self._touch(pool)

    def release(self, attempt: Running) -> None:
        pool = self._pool(attempt.cluster, attempt.sku)
        held = pool.attempts.pop((attempt.job, attempt.task))
        pool.stopping -= held.stopping * held.gpus
        self._unlist(pool, held)
        self._take(pool, held.nodes, -1)
        self._touch(pool)

    def capacity(self) -> Mapping[str, int]:
        """GPUs of each SKU, of all members."""
        self._refresh()
        return self._capacity

    def by_sku(self) -> Mapping[str, Mask]:
        """Which pools are of a SKU."""
        self._refresh()
        return self._by_sku

    def whole_room(self, size: int) -> Counts:
        """Pods of this size that would find room if nothing ran, by pool; at least 1."""
        self._refresh()
        found = self._whole_room.get(size)
        if found is None:
            room = [sum(gpus // size for gpus in pool.total.values()) for pool in self.all]
            found = self._whole_room[size] = np.maximum(1, np.array(room, np.int32))
        return found

    def _refresh(self) -> None:
        """What depends on the layout alone."""
        if self._refreshed == self.layout:
            return
        self._refreshed = self.layout
        capacity: dict[str, int] = {}
        for pool in self.all:
            capacity[pool.sku.name] = capacity.get(pool.sku.name, 0) + sum(pool.total.values())
        self._capacity = capacity
        self._by_sku = {sku: np.array([pool.sku.name == sku for pool in self.all]) for sku in capacity}
        self._whole_room = {}

    def room(self, size: int) -> Counts:
        """Pods of this size that find room in what is free, by pool. Kept up to date: not to be written to, and not to be kept."""
        found = self._room.get(size)
        if found is None:
            found = self._room[size] = self.counts @ self.weights(size)
        return found

    def most_room(self, size: int) -> int:
        """Pods of this size that find room in the pool that has most for them."""
        found = self._most_room.get(size)
        if found is None or found[0] != self.changed:
            found = self._most_room[size] = (self.changed, int(self.room(size).max(initial=0)))
        return found[1]

    def free_gpus(self) -> Counts:
        """GPUs that nothing holds, by pool."""
        return self.room(1)

    def weights(self, size: int) -> Counts:
        width = self.counts.shape[1]
        found = self._weights.get(size)
        if found is None or len(found) != width:
            found = self._weights[size] = (np.arange(width, dtype=np.int32) // max(size, 1)).astype(np.int32)
        return found

    def _touch(self, pool: Pool) -> None:
        self.changes += 1
        pool.version = self.changes

    def _pool(self, member: str, sku: str) -> Pool:
        found = self._by_name.get((member, sku))
        return found if found is not None else self._new(member, SkuFacts(sku, 1))

    def _new(self, member: str, sku: SkuFacts) -> Pool:
        pool = Pool(len(self.all), member, sku)
        pool.by_free = [[] for _ in range(self.counts.shape[1])]
        pool.usable = False
        self.all.append(pool)
        self._by_name[member, sku.name] = pool
        self.counts = np.vstack([self.counts, np.zeros((1, self.counts.shape[1]), np.int32)])
        self._room = {}
        self.layout += 1
        self.changed += 1
        return pool

    def _set_pool(self, member: Member, sku: SkuFacts, nodes: Mapping[str, tuple[int, int]], *, present: bool) -> None:
        pool = self._pool(member.name, sku.name)
        pool.sku, pool.usable, pool.why_not, pool.near = sku, member.usable, member.why_not, member.near
        pool.present = present
        base = {name: min(free, gpus) for name, (gpus, free) in nodes.items()}
        if base == pool.base and pool.total == {name: gpus for name, (gpus, _) in nodes.items()}:
            return
        self._touch(pool)
        self._widen(max((gpus for gpus, _ in nodes.values()), default=0))
        for name in [name for name in pool.base if name not in nodes]:
            self._move(pool, name, None)
            del pool.base[name], pool.total[name]
        for name, (gpus, _) in nodes.items():
            pool.total[name], pool.base[name] = gpus, base[name]
            self._move(pool, name, max(0, pool.base[name] - pool.held.get(name, 0)))

    def _widen(self, most: int) -> None:
        missing = most + 1 - self.counts.shape[1]
        if missing > 0:
            self.changed += 1
            self.counts = np.hstack([self.counts, np.zeros((len(self.all), missing), np.int32)])
            self._room = {}
            for pool in self.all:
                pool.by_free += [[] for _ in range(missing)]

    def _take(self, pool: Pool, nodes: Mapping[str, int], sign: int) -> None:
        for name, gpus in nodes.items():
            held = pool.held.get(name, 0) + sign * gpus
            if held:
                pool.held[name] = held
            else:
                pool.held.pop(name, None)
            if name in pool.base:
                self._move(pool, name, max(0, pool.base[name] - held))

    def _move(self, pool: Pool, name: str, free: int | None) -> None:
        """Set a node's free GPUs; None: the node is gone."""
        before = pool.free.get(name)
        if before == free:
            return
        self.changed += 1
        if before is not None:
            names = pool.by_free[before]
            del names[bisect_left(names, name)]
            self.counts[pool.index, before] -= 1
            del pool.free[name]
        if free is not None:
            pool.free[name] = free
            insort(pool.by_free[free], name)
            self.counts[pool.index, free] += 1
        for size, room in self._room.items():
            pods = (free or 0) // max(size, 1) - (before or 0) // max(size, 1)
            if pods:
                room[pool.index] += pods

    @staticmethod
    def _unlist(pool: Pool, attempt: Running) -> None:
        entry = (attempt.ends, attempt.job, attempt.task)
        del pool.running[bisect_left(pool.running, entry)]


def _layout_of(member: Member) -> object:
    """All of a member but what is free of it."""
    return replace(member, nodes=tuple(replace(node, free=0) for node in member.nodes))
