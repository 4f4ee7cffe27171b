"""Free GPUs of all members. A pool is the nodes of one SKU in one member.

Each pool counts its nodes by free GPUs: with 0, 1, 2 … free. The number of pods of size `s` that fit is the product of these counts with
`floor(free / s)`, for all pools at once. So a question about hundreds of pools costs as much as one about a single pool.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tuneyard.federation.world import PRIORITIES, Member, Running, SkuFacts

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]
Counts = npt.NDArray[np.int32]
Scores = npt.NDArray[np.float64]
Key = tuple[str, str]
"""Job and task."""


@dataclass(frozen=True)
class Start:
    """The earliest start of a gang in a pool: it takes `takes` GPUs by node, after the attempts `after` have ended, in this order."""

    pool: Pool
    at: float
    takes: Mapping[str, int] = field(hash=False)
    after: tuple[Running, ...] = ()


@dataclass
class Answers:
    """Answers about a pool that hold until something in it changes."""

    starts: dict[tuple[int, int], Start | None] = field(default_factory=dict)
    """Earliest starts by number and size of pods, without reservations."""
    lower: dict[int, Sequence[Running]] = field(default_factory=dict)
    """Preemptible attempts below a priority, youngest checkpoint first."""
    equal: dict[int, tuple[Sequence[Running], frozenset[str]]] = field(default_factory=dict)
    """Preemptible attempts of a priority, and their teams."""


class Pool:
    """`total`: GPUs by node; `base`: GPUs that pods of others leave; `free`: unallocated GPUs; `running`: attempts by predicted end."""

    def __init__(self, index: int, member: str, sku: SkuFacts) -> None:
        self.index = index
        self.member = member
        self.sku = sku
        self.is_cpu = sku.name == "cpu"
        self.present = False
        """Its member is there and has nodes of the SKU. False where only attempts are left of the pool."""
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
        """GPUs of attempts that are being preempted."""
        self.version = 0
        self.answers = Answers()
        self._teams: frozenset[str] | None = None

    def teams(self) -> frozenset[str]:
        """Teams with an attempt in this pool."""
        if self._teams is None:
            self._teams = frozenset(attempt.team for attempt in self.attempts.values())
        return self._teams

    def touch(self, version: int) -> None:
        """Something in the pool has changed."""
        self.version = version
        self.answers = Answers()
        self._teams = None

    def room(self, size: int, without: Mapping[str, int]) -> int:
        """Pods of this size that fit into free GPUs. `without`: GPUs by node that stay free."""
        room = sum(len(names) * (free // size) for free, names in enumerate(self.by_free))
        for name, gpus in without.items():
            free = self.free.get(name, 0)
            room -= free // size - max(0, free - gpus) // size
        return room

    def pick(self, pods: int, size: int, without: Mapping[str, int]) -> dict[str, int]:
        """GPUs by node for a number of pods: fullest nodes first, so that empty nodes stay whole. `without`: GPUs by node that stay
        free."""
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


class Layout:
    """Pools and their nodes, whatever runs there. Another layout replaces it when pools, their usability or their nodes change."""

    def __init__(self, version: int, pools: Sequence[Pool]) -> None:
        self.version = version
        self.pools = tuple(pools)
        self.capacity: Counter[str] = Counter()
        """GPUs by SKU, over all members."""
        for pool in pools:
            self.capacity[pool.sku.name] += sum(pool.total.values())
        self.by_sku: Mapping[str, Mask] = {sku: np.array([pool.sku.name == sku for pool in pools]) for sku in self.capacity}
        priced = [(pool.sku.name, pool.sku.price_per_gpu_hour) for pool in pools]
        self.kinds = sorted(set(priced))
        """SKUs with their price per GPU-hour."""
        self.kind_of: Indices = np.array([self.kinds.index(each) for each in priced], np.intp)
        """Indices into `kinds`, by pool."""
        self.distances: dict[tuple[tuple[str, ...], ...], Scores] = {}
        """Scores of distance by pool, for each kind of preference of asks."""
        self._whole_room: dict[int, Counts] = {}

    def whole_room(self, size: int) -> Counts:
        """Pods of this size that would fit into empty nodes, by pool; at least 1."""
        found = self._whole_room.get(size)
        if found is None:
            room = [sum(gpus // size for gpus in pool.total.values()) for pool in self.pools]
            found = self._whole_room[size] = np.maximum(1, np.array(room, np.int32))
        return found


class Pools:
    """All pools. `counts[p, f]`: nodes of pool `p` with `f` free GPUs."""

    def __init__(self) -> None:
        self.all: list[Pool] = []
        self.members: dict[str, Member] = {}
        self.changes = 0
        """Number of changes of pools. The version of a pool is the number of its last change."""
        self.changed = 0
        """Number of changes of a node's free GPUs."""
        self.preemptible: Counter[int] = Counter()
        """Attempts by priority that may be preempted or are being preempted."""
        self.stopping = 0
        """Attempts that are being preempted."""
        self.counts: Counts = np.zeros((0, 9), np.int32)
        self._by_name: dict[tuple[str, str], Pool] = {}
        self._weights: dict[int, Counts] = {}
        self._room: dict[int, Counts] = {}
        self._most_room: dict[int, tuple[int, int]] = {}
        self._layout_version = 0
        self._layout: Layout | None = None

    @property
    def layout(self) -> Layout:
        """The layout as of now."""
        if self._layout is None or self._layout.version != self._layout_version:
            self._layout = Layout(self._layout_version, self.all)
        return self._layout

    def get(self, member: str, sku: str) -> Pool | None:
        return self._by_name.get((member, sku))

    def of(self, member: str) -> Iterator[Pool]:
        return (pool for pool in self.all if pool.member == member)

    def set_member(self, member: Member) -> None:
        """Set a member as it is now."""
        before = self.members.get(member.name)
        if before == member:
            return
        self.members[member.name] = member
        if before is None or _layout_of(before) != _layout_of(member):
            self._layout_version += 1
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
        """Remove a member. Its pools stay, unusable, while attempts hold GPUs there."""
        member = self.members.pop(name, None)
        if member is None:
            return
        self._layout_version += 1
        for pool in self.of(name):
            for node in list(pool.base):
                self._move(pool, node, None)
            pool.total, pool.base = {}, {}
            pool.present, pool.usable, pool.why_not = False, False, "was removed"
            self._touch(pool)

    def snapshot(self) -> Iterator[Member]:
        """Members as they are now, with the free GPUs of each node."""
        for member in self.members.values():
            nodes = []
            for node in member.nodes:
                pool = self._by_name[member.name, node.sku]
                nodes.append(replace(node, free=pool.base[node.name] - pool.held.get(node.name, 0)))
            yield replace(member, nodes=tuple(nodes))

    def hold(self, attempt: Running) -> None:
        """Allocate an attempt's GPUs. An attempt of the same task in the same pool is replaced."""
        key = (attempt.job, attempt.task)
        pool = self._pool(attempt.cluster, attempt.sku)
        before = pool.attempts.get(key)
        self._count(attempt, 1)
        pool.stopping += attempt.stopping * attempt.gpus
        if before is not None:
            pool.stopping -= before.stopping * before.gpus
            self._count(before, -1)
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
        """Free an attempt's GPUs."""
        pool = self._pool(attempt.cluster, attempt.sku)
        held = pool.attempts.pop((attempt.job, attempt.task))
        pool.stopping -= held.stopping * held.gpus
        self._count(held, -1)
        self._unlist(pool, held)
        self._take(pool, held.nodes, -1)
        self._touch(pool)

    def room(self, size: int) -> Counts:
        """Pods of this size that fit into free GPUs, by pool. The array changes with the pools: callers neither write nor keep it."""
        found = self._room.get(size)
        if found is None:
            found = self._room[size] = self.counts @ self.weights(size)
        return found

    def most_room(self, size: int) -> int:
        """Pods of this size that fit into the pool with most room for them."""
        found = self._most_room.get(size)
        if found is None or found[0] != self.changed:
            found = self._most_room[size] = (self.changed, int(self.room(size).max(initial=0)))
        return found[1]

    def with_room(self, pods: int, size: int, pools: Indices) -> Indices:
        """Pools of `pools` with room for the pods of a gang."""
        if self.most_room(size) < pods:
            return pools[:0]
        return pools[self.room(size)[pools] >= pods]

    def free_gpus(self) -> Counts:
        """Free GPUs by pool."""
        return self.room(1)

    def torn(self, pods: int, size: int, pools: Indices) -> Scores:
        """Fragmentation by a gang in each of `pools`, from 0 to 1. One half counts where no node has exactly `size` free GPUs. The other
        half is the share of the pool's room for such pods that stays free, so that large blocks are left to large gangs."""
        room = (self.room(size).take(pools) - pods) / self.layout.whole_room(size).take(pools)
        torn: Scores = 0.5 * (room + (self.counts[:, size].take(pools) == 0))
        return torn

    def weights(self, size: int) -> Counts:
        width = self.counts.shape[1]
        found = self._weights.get(size)
        if found is None or len(found) != width:
            found = self._weights[size] = (np.arange(width, dtype=np.int32) // max(size, 1)).astype(np.int32)
        return found

    def _count(self, attempt: Running, sign: int) -> None:
        self.stopping += sign * attempt.stopping
        if attempt.preemptible or attempt.stopping:
            self.preemptible[PRIORITIES[attempt.priority]] += sign

    def _touch(self, pool: Pool) -> None:
        self.changes += 1
        pool.touch(self.changes)

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
        self._layout_version += 1
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
        """Set a node's free GPUs. None: the node is gone."""
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
    """A member without its free GPUs."""
    return replace(member, nodes=tuple(replace(node, free=0) for node in member.nodes))
