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
        """Attempts with work waiting or running: whether more was asked for meanwhile."""
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._busy)

    def __contains__(self, attempt: object) -> bool:
        """Whether work for this attempt waits or runs."""
        return attempt in self._busy

    def hand(self, attempt: str, work: Work, then: Callable[[], None]) -> None:
        """Have `work` done. It must raise nothing.

        If work for the attempt waits or runs already, none is added; `then` is called once that work is over, to look again.
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
        """Cut running work short: it may have happened or not, as in a hub that is killed."""
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
