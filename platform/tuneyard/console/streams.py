"""Live pages: server-sent events with the part of a page that has changed."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tuneyard.console.pages import failure

SHARE = 40
"""Live pages of one reader at once, so that no reader takes those of all others."""
_LOOKS_PER_S = 50
_SILENT_S = 15.0
"""After this time without a change a stream has a comment, so that proxies with a limit on silence keep it open."""


@dataclass(frozen=True)
class Look:
    """The state of a page now. `change`: differs after each change; `html`: its live part, empty where nothing has changed."""

    change: Any
    html: str
    ended: bool


class Streams:
    """The open streams of one source. `most` at once, SHARE of them of one reader; each looks every `every_s` seconds."""

    def __init__(self, *, most: int = 40, every_s: float = 1.0) -> None:
        self._most = most
        self._every_s = every_s
        self._open: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """Streams that are open now."""
        return self._open.total()

    def follow(self, request: Request, look: Callable[[Any], Look], *, reader: str = "") -> Response:
        """Events `page` with the HTML of each change, and `ended` at the end. `look` gets the last `change`, or None; it may block.

        `reader`: stands for the identity of the reader."""
        if self.open >= self._most:
            return failure(request, 503, f"{self._most} live pages are open", "close some, then reload this page")
        if self._open[reader] >= SHARE:
            return failure(request, 429, f"{SHARE} live pages of yours are open", "close some, then reload this page")
        events = self._events(request, look, reader)
        return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _events(self, request: Request, look: Callable[[Any], Look], reader: str) -> AsyncIterator[str]:
        self._open[reader] += 1
        change, digest = None, ""
        try:
            yield "retry: 2000\n\n"
            said_at = time.monotonic()
            while not await request.is_disconnected():
                began = time.monotonic()
                seen = await run_in_threadpool(look, change)
                change = seen.change
                new = hashlib.sha256(seen.html.encode()).hexdigest() if seen.html else digest
                if new != digest:
                    digest, said_at = new, time.monotonic()
                    yield event("page", seen.html)
                if seen.ended:
                    yield event("ended", "1")
                    return
                if time.monotonic() - said_at >= _SILENT_S:
                    said_at = time.monotonic()
                    yield ": no change\n\n"
                # A page that takes long, as of a run with a million steps, takes a quarter of a core at most.
                # And many pages together ask no more often than _LOOKS_PER_S.
                await asyncio.sleep(max(self._every_s, self.open / _LOOKS_PER_S, 3 * (time.monotonic() - began)))
        finally:
            self._open[reader] -= 1
            if not self._open[reader]:
                del self._open[reader]


def event(name: str, data: str) -> str:
    """One server-sent event."""
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in data.split("\n")) + "\n"
