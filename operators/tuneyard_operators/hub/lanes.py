"""Actions on members: a few at a time for each member, so that a member that hangs does not delay the others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

Work = Callable[[], Awaitable[None]]


class Lane:
    """At most `at_once` actions run; never two of one attempt, so that what is being created cannot count as gone at the same time."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._waiting: deque[tuple[str, Work, Callable[[], None]]] = deque()
        self._busy: dict[str, bool] = {}
        """Attempts, and whether something else was wanted for them meanwhile."""
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._busy)

    def __contains__(self, attempt: object) -> bool:
        """Whether something is being done, or about to be, for this attempt."""
        return attempt in self._busy

    def hand(self, attempt: str, work: Work, then: Callable[[], None]) -> None:
        """Have `work` done, which must raise nothing.

        Where something is under way for the attempt nothing is added, but `then` is called once that is over: it is time to look again.
        """
        if attempt in self._busy:
            self._busy[attempt] = True
            return
        self._busy[attempt] = False
        self._waiting.append((attempt, work, then))
        if len(self._running) < self._at_once:
            task = asyncio.create_task(self._work())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Cut short what is under way: it may have happened or not, as where the hub is killed."""
        self._waiting.clear()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._busy.clear()

    async def _work(self) -> None:
        while self._waiting:
            attempt, work, then = self._waiting.popleft()
            try:
                await work()
            finally:
                if self._busy.pop(attempt, False):
                    then()
