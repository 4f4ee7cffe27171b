"""A token bucket that limits the requests started per second, with a burst of one second's worth."""

from __future__ import annotations

import asyncio


class Rate:
    """Lets `per_second` callers through each second, first come, first served."""

    def __init__(self, per_second: float) -> None:
        self._interval_s = 1.0 / per_second
        self._burst_s = 1.0
        self._next = 0.0

    async def wait(self) -> None:
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - self._burst_s) + self._interval_s
        if self._next > now:
            await asyncio.sleep(self._next - now)
