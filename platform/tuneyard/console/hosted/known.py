"""Readers in memory: what a reader was shown a moment ago is theirs alone, and goes when they are gone."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tuneyard.cluster import Hub
from tuneyard.console.hub import Reader
from tuneyard.kubernetes.kinds import JOBSPEC

MOST_READERS = 500
MOST_SNAPSHOTS = 20
"""In memory at once: one of 10,000 JobSpecs takes about 100 MB."""
IDLE_S = 60.0
_NAMESPACES_S = 30.0
_RIGHTS_S = 30.0
_AT_ONCE = 8


class KnownReaders:
    """Readers by a key that stands for their identity. `own`: the hub with the console's rights, for the names of namespaces alone."""

    def __init__(self, own: Hub) -> None:
        self._own = own
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Reader] = OrderedDict()
        self._names: tuple[float, list[str]] = (0.0, [])

    def reader(self, key: str, make: Callable[[], Hub], name: str = "") -> Reader:
        with self._lock:
            found = self._known.get(key)
            if found is None:
                hub = make()
                found = self._known[key] = Reader(hub, name=name, namespaces=_Allowed(hub, self.namespaces))
            self._known.move_to_end(key)
            self._make_room(found)
            return found

    def namespaces(self) -> list[str]:
        """The names of all namespaces, 30 s old at most."""
        asked, names = self._names
        if not names or time.monotonic() - asked > _NAMESPACES_S:
            names = self._own.namespaces()
            self._names = (time.monotonic(), names)
        return names

    def _make_room(self, current: Reader) -> None:
        while len(self._known) > MOST_READERS:
            self._known.popitem(last=False)
        others = [each for each in self._known.values() if each is not current and each.idle_s]
        for each in others[: max(0, len(others) - MOST_SNAPSHOTS + 1)]:
            each.forget()
        for each in others:
            if each.idle_s > IDLE_S:
                each.forget()


class _Allowed:
    """The namespaces in which a reader may list JobSpecs, asked with the reader's own rights."""

    def __init__(self, hub: Hub, names: Callable[[], list[str]]) -> None:
        self._hub = hub
        self._names = names
        self._found: tuple[float, list[str]] | None = None

    def __call__(self) -> list[str]:
        if self._found is None or time.monotonic() - self._found[0] > _RIGHTS_S:
            names = self._names()
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                may = list(pool.map(lambda name: self._hub.may("list", JOBSPEC, name), names))
            self._found = (time.monotonic(), [name for name, yes in zip(names, may, strict=True) if yes])
        return self._found[1]
