"""The memory that the objects of each namespace take in a cache, and the share that none may exceed."""

from __future__ import annotations

from collections import Counter

import msgspec

from tuneyard.kubernetes import NO_ROOM, Key, Object, unreadable
from tuneyard.kubernetes.reading import memory_of

_GROWTH = 1.25
"""Of a share, for an object that has room already: a status that grows must not cost the spec its room."""
_FREE_AGAIN = 0.9
"""Of a share, below which objects that wait are listed again. Nearer to it, each small change would lead to a list of all."""


class Shares:
    """`most_bytes`: the share of a namespace, by the estimate of `tuneyard.kubernetes.reading`. `waiting`: objects that had no room."""

    def __init__(self, most_bytes: int) -> None:
        self.waiting: set[Key] = set()
        self._most = most_bytes
        self._taken: dict[Key, int] = {}
        self._by_namespace: Counter[str] = Counter()

    def take(self, key: Key, item: Object | None) -> str:
        """Count an object (None: it is removed). Returns why its namespace has no room for it; empty if there is room."""
        most = self._most * (_GROWTH if key in self._taken else 1)
        self._by_namespace[key[0]] -= self._taken.pop(key, 0)
        self.waiting.discard(key)
        if item is None:
            return ""
        if why := unreadable(item).get(NO_ROOM, ""):  # a write of the hub to an object that waits
            self.waiting.add(key)
            return why
        size = memory_of(msgspec.json.encode(item))
        if self._by_namespace[key[0]] + size > most:
            self.waiting.add(key)
            return f"the namespace {key[0]} has objects of more than {self._most / 2**20:g} MiB: remove some that have ended"
        self._taken[key] = size
        self._by_namespace[key[0]] += size
        return ""

    @property
    def has_room_again(self) -> bool:
        """Whether some namespace with waiting objects has a tenth of its share free."""
        return any(self._by_namespace[namespace] < _FREE_AGAIN * self._most for namespace in {key[0] for key in self.waiting})
