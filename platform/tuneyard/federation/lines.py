"""Who waits: a line for each priority, kind of ask and team, in the order of the policy. Only the heads of lines need a look."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tuneyard.federation.policy import Policy
from tuneyard.federation.pools import Key
from tuneyard.federation.shapes import Shape, ShapeKey
from tuneyard.federation.world import PRIORITIES, Ask

OWED_FIRST_S = 1e11
"""Puts whoever is owed room before all others of its priority, whatever the policy's order."""


class Entry(NamedTuple):
    """`rank`: by which asks of one priority and one team are ordered, in seconds since the epoch or of GPU-time. No two are equal in job
    and task, so that entries compare without their asks."""

    rank: float
    created: float
    job: str
    task: str
    ask: Ask

    @property
    def key(self) -> Key:
        return self.job, self.task


class Line:
    """Asks of one priority, one team and one shape, by rank. `never`: whether none of them could ever run."""

    def __init__(self, shape: Shape, team: str) -> None:
        self.shape = shape
        self.team = team
        self.entries: list[Entry] = []
        self.never = False
        self._seconds: list[float] = []

    @property
    def shortest_s(self) -> float:
        """The least of their predicted durations, with the first world on the reference SKU."""
        return self._seconds[0]

    def add(self, entry: Entry) -> None:
        insort(self.entries, entry)
        insort(self._seconds, entry.ask.seconds)

    def remove(self, entry: Entry) -> None:
        del self.entries[bisect_left(self.entries, entry)]
        del self._seconds[bisect_left(self._seconds, entry.ask.seconds)]


class Group:
    """Lines of one priority and one shape, by team: where nothing free would do for one, nothing would for the others."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.lines: dict[str, Line] = {}


class Lines:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._shapes: dict[ShapeKey, Shape] = {}
        self._groups: dict[int, dict[ShapeKey, Group]] = {}
        self._entries: dict[Key, tuple[Line, Entry]] = {}
        self.fresh: list[Line] = []
        """Lines that came into being since somebody emptied this."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Ask]:
        return (entry.ask for _, entry in self._entries.values())

    def get(self, key: Key) -> tuple[Line, Entry] | None:
        return self._entries.get(key)

    def add(self, ask: Ask) -> None:
        """Put an ask that does not wait yet into its line."""
        line = self._line(ask)
        entry = Entry(self._rank(ask), ask.created, ask.job, ask.task, ask)
        line.add(entry)
        self._entries[entry.key] = (line, entry)

    def remove(self, key: Key) -> Ask | None:
        """Take an ask out; None if it does not wait."""
        found = self._entries.pop(key, None)
        if found is None:
            return None
        line, entry = found
        line.remove(entry)
        if not line.entries:
            self._close(PRIORITIES[entry.ask.priority], Shape.key(entry.ask), line.team)
        return entry.ask

    def priorities(self) -> list[int]:
        """Those of which anybody waits, highest first."""
        return sorted(self._groups, reverse=True)

    def groups(self, priority: int) -> Iterable[Group]:
        return self._groups.get(priority, {}).values()

    def all(self) -> Iterator[Line]:
        return (line for groups in self._groups.values() for group in groups.values() for line in group.lines.values())

    def _line(self, ask: Ask) -> Line:
        key = Shape.key(ask)
        groups = self._groups.setdefault(PRIORITIES[ask.priority], {})
        group = groups.get(key)
        if group is None:
            shape = self._shapes.get(key)
            if shape is None:
                shape = self._shapes[key] = Shape(ask)
            group = groups[key] = Group(shape)
        line = group.lines.get(ask.team)
        if line is None:
            line = group.lines[ask.team] = Line(group.shape, ask.team)
            self.fresh.append(line)
        return line

    def _close(self, priority: int, key: ShapeKey, team: str) -> None:
        groups = self._groups[priority]
        del groups[key].lines[team]
        if not groups[key].lines:
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
