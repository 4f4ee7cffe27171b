"""Runs actions on members, a few at a time for each member, so that a member that hangs does not delay the others.

The owners of jobs take turns (`turns`): a thousand starts of one namespace do not delay the start of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tuneyard_operators.hub.turns import Turns

Work = Callable[[], Awaitable[None]]


class Lane:
    """Runs at most `at_once` actions, and never two for one attempt: an attempt that is being created cannot count as removed meanwhile."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._waiting: Turns[tuple[str, Work, Callable[[], None]]] = Turns()
        self._busy: dict[str, bool] = {}
        """Attempts with work waiting or running; True if more work was handed in meanwhile."""
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._busy)

    def __contains__(self, attempt: object) -> bool:
        """Whether work for this attempt waits or runs."""
        return attempt in self._busy

    def hand(self, attempt: str, work: Work, then: Callable[[], None], *, owner: str) -> None:
        """Queue `work` for an attempt of a job of `owner`, its namespace. `work` must raise nothing.

        If work for the attempt waits or runs already, the new work is dropped, and the first work's `then` is called at its end, so that
        the job is reconciled again.
        """
        if attempt in self._busy:
            self._busy[attempt] = True
            return
        self._busy[attempt] = False
        self._waiting.add(owner, (attempt, work, then))
        if len(self._running) < self._at_once:
            task = asyncio.create_task(self._work())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Cancel all work. As after a kill of the hub, cancelled work may have taken effect or not."""
        self._waiting.clear()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._busy.clear()

    async def _work(self) -> None:
        while found := self._waiting.take():
            attempt, work, then = found[1]
            try:
                await work()
            finally:
                if self._busy.pop(attempt, False):
                    then()
