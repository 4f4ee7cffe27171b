"""A queue of keys to reconcile, after client-go's work queue.

A key waits at most once however often it is added, only one worker has it at a time, and it may be added after a delay. Owners of keys take
turns (`turns`), and one owner has at most a share of the workers, so that some are free for the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from tuneyard.kubernetes import backoff_s
from tuneyard_operators.hub.turns import Turns

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """`owner_of`: the owner of a key; `most_of_one`: most keys of one owner that workers have at a time."""

    def __init__(self, owner_of: Callable[[K], str] = lambda _key: "", most_of_one: int = 2**31) -> None:
        self._owner_of = owner_of
        self._most_of_one = most_of_one
        self._waiting: Turns[K] = Turns()
        self._at_work: Counter[str] = Counter()
        self._queued: set[K] = set()
        self._busy: set[K] = set()
        self._again: set[K] = set()
        self._timers: dict[K, tuple[float, asyncio.Handle]] = {}
        """Due time and timer of each delayed key. The time is kept because an event loop's handle need not tell it."""
        self._failures: dict[K, int] = {}
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._busy)

    def add(self, key: K) -> None:
        if key in self._busy:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._waiting.add(self._owner_of(key), key)
            self._some.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Add a key after a delay, unless an earlier time is set already."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, seconds)
        known = self._timers.get(key)
        if known is not None:
            if known[0] <= due:
                return
            known[1].cancel()
        self._timers[key] = (due, loop.call_later(due - loop.time(), self._due, key))

    def retry(self, key: K, *, base_s: float = 0.2, longest_s: float = 30.0) -> None:
        """Add a key after a pause that doubles with each retry until `forget`."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, backoff_s(base_s, failures + 1, longest_s))

    def failures(self, key: K) -> int:
        """Number of retries of a key since the last `forget`."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Reset the pauses of `retry`."""
        self._failures.pop(key, None)

    def drop(self, key: K) -> None:
        """Cancel the delayed add of a key, and reset its retries."""
        self.forget(key)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer[1].cancel()

    def close(self) -> None:
        """Cancel all delayed adds."""
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def get(self) -> K:
        while (found := self._waiting.take(lambda owner: self._at_work[owner] < self._most_of_one)) is None:
            self._some.clear()
            await self._some.wait()
        owner, key = found
        self._at_work[owner] += 1
        self._queued.discard(key)
        self._busy.add(key)
        return key

    def done(self, key: K) -> None:
        self._busy.discard(key)
        owner = self._owner_of(key)
        self._at_work[owner] -= 1
        if not self._at_work[owner]:
            del self._at_work[owner]
        if self._waiting:  # perhaps keys of an owner that had all of its workers
            self._some.set()
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)
