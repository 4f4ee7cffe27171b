"""Queues of waiting asks: one for each priority, shape and team, in the order of the policy. A cycle looks at the heads of queues."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from tuneyard.federation.policy import Policy
from tuneyard.federation.pools import Key
from tuneyard.federation.shapes import Shape, ShapeKey
from tuneyard.federation.world import PRIORITIES, Ask

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

    def unjudged(self, stamp: object) -> list[Queue]:
        """Queues of which it is not known whether their asks could ever run. A new `stamp` makes all of them unknown."""
        if stamp == self._stamp:
            found = self._new
        else:
            found, self._infeasible, self._stamp = list(self.all()), [], stamp
        self._new = []
        return [queue for queue in found if queue.entries]

    def judge(self, queue: Queue, *, infeasible: bool) -> None:
        """Set whether asks of an unjudged queue could ever run."""
        queue.infeasible = infeasible
        queue.refused.clear()
        if infeasible:
            self._infeasible.append(queue)

    def to_refuse(self) -> list[tuple[Entry, Queue]]:
        """Infeasible asks that have not been refused, by age. They count as refused from now on."""
        self._infeasible = [queue for queue in self._infeasible if queue.entries]
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
