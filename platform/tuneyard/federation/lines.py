"""Who waits: a line for each priority, kind of ask and team, in the order of the policy. Only the heads of lines need a look."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from tuneyard.federation.policy import Policy
from tuneyard.federation.pools import Key
from tuneyard.federation.shapes import Shape, ShapeKey
from tuneyard.federation.world import PRIORITIES, Ask


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
    """Asks of one priority, one team and one shape, by rank."""

    def __init__(self, priority: int, shape: Shape, team: str) -> None:
        self.priority = priority
        self.shape = shape
        self.team = team
        self.entries: list[Entry] = []


class Lines:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._shapes: dict[ShapeKey, Shape] = {}
        self._lines: dict[tuple[int, ShapeKey, str], Line] = {}
        self._entries: dict[Key, tuple[Line, Entry]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Ask]:
        return (entry.ask for _, entry in self._entries.values())

    def get(self, key: Key) -> tuple[Line, Entry] | None:
        return self._entries.get(key)

    def add(self, ask: Ask) -> bool:
        """Put an ask into its line, instead of an earlier version of it. False if it stands there already."""
        key = (ask.job, ask.task)
        known = self._entries.get(key)
        if known is not None:
            if known[1].ask == ask:
                return False
            self.remove(key)
        line = self._line(ask)
        entry = Entry(self._rank(ask), ask.created, ask.job, ask.task, ask)
        insort(line.entries, entry)
        self._entries[key] = (line, entry)
        return True

    def remove(self, key: Key) -> Ask | None:
        """Take an ask out; None if it does not wait."""
        found = self._entries.pop(key, None)
        if found is None:
            return None
        line, entry = found
        del line.entries[bisect_left(line.entries, entry)]
        if not line.entries:
            del self._lines[line.priority, Shape.key(entry.ask), line.team]
        return entry.ask

    def lines(self) -> list[Line]:
        return list(self._lines.values())

    def shape(self, ask: Ask) -> Shape:
        """The shape of an ask, which need not wait."""
        key = Shape.key(ask)
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = Shape(ask)
        return found

    def _line(self, ask: Ask) -> Line:
        key = (PRIORITIES[ask.priority], Shape.key(ask), ask.team)
        found = self._lines.get(key)
        if found is None:
            found = self._lines[key] = Line(key[0], self.shape(ask), ask.team)
        return found

    def _rank(self, ask: Ask) -> float:
        if self._policy.order == "age":
            return ask.created
        size = ask.seconds * max(1, ask.worlds[0])
        return size if self._policy.order == "shortest" else ask.created + self._policy.stretch * size
