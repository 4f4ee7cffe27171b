"""Hears requests for a server that sleeps, tells the hub, and asks the caller to come again: the program of a pod on the member.

A request for an answer that brings the key wakes the server. It is held for a while, as the address may lead to a server by then; after
that it gets 503 with Retry-After, and its client sends it again. Clients of OpenAI's API do so by themselves. Other requests wake nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import uvicorn

from tuneyard.api.serve import API_KEY, SERVED_PORT
from tuneyard.runtime.attempt.member_api import ApiServer, ApiUnavailable, ReportObject
from tuneyard.runtime.serve.middleware import CHATS, COMPLETIONS, Message, Receive, Send, has_key, refuse

HOLD_S = 45.0
"""Below the minute after which many proxies give a request up."""
_AGAIN_S = 5
_BUSY_AGAIN_S = 30
_MOST_HELD = 200
_MOST_CONNECTIONS = 2000
_TOLD_FOR_S = 2.0
_CLOSE_S = 3


class Door:
    """ASGI application. `close` answers whoever is held: the address leads to a server now, or nobody waits for requests any more."""

    def __init__(self, report: ReportObject, key: str, hold_s: float = HOLD_S) -> None:
        self._report, self._key, self._hold_s = report, key.encode(), hold_s
        self._telling = asyncio.Lock()
        self._told_at: float = -_TOLD_FOR_S
        self._standing: str | ApiUnavailable | None = ""
        self._closing, self._held = asyncio.Event(), 0

    def close(self) -> None:
        self._closing.set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await _read(receive)
        asleep = "the model is asleep: it gave its machines back for lack of requests"
        if scope["path"] == "/health":
            await refuse(send, 503, asleep)
        elif not has_key(scope, self._key):
            await refuse(send, 401, "the key is missing or wrong")
        elif scope["path"] not in (CHATS, COMPLETIONS) or scope["method"] != "POST":
            await refuse(send, 503, f"{asleep}. A request to {CHATS} or {COMPLETIONS} wakes it")
        else:
            again_s, why = await self._woken()
            more = ((b"retry-after", str(again_s).encode()), (b"connection", b"close")) if again_s else ()
            await refuse(send, 503, f"{asleep}. {why}", more=more)

    async def _woken(self) -> tuple[int, str]:
        """Wake the server, and wait a while for the end of this program. Returns the seconds after which the client is to come again (0:
        not at all), and what it is told."""
        try:
            standing = await self._tell()
            holds = standing is not None and self._held < _MOST_HELD
            if holds and await self._ends():
                return 1, "A server may answer by now: send the request again"
            standing = await self._tell()
        except ApiUnavailable as error:
            return _BUSY_AGAIN_S, f"The hub cannot be told of this request: {error}"
        if standing is None:
            return 0, "Requests wake it no longer: its job is suspended, or has ended"
        told = standing or "the hub has not answered yet"
        return (_AGAIN_S if holds else _BUSY_AGAIN_S), f"A request has woken it: {told}. Send the request again"

    async def _ends(self) -> bool:
        self._held += 1
        try:
            await asyncio.wait_for(self._closing.wait(), self._hold_s)
        except TimeoutError:
            return False
        finally:
            self._held -= 1
        return True

    async def _tell(self) -> str | None:
        """Tell the hub, at most every few seconds whatever comes, and hear how far the next server is; None: the hub waits for no request.
        Raises ApiUnavailable."""
        async with self._telling:
            if time.monotonic() - self._told_at >= _TOLD_FOR_S:
                try:
                    self._standing = await asyncio.to_thread(self._report.note_request, datetime.now(UTC))
                except ApiUnavailable as error:  # an API server that is away is not asked by each request of a flood
                    self._standing = error
                self._told_at = time.monotonic()
        if isinstance(self._standing, ApiUnavailable):
            raise ApiUnavailable(str(self._standing))
        return self._standing


async def _read(receive: Receive) -> None:
    """Read a request to its end, as a client expects that is still sending it."""
    while (message := await receive())["type"] == "http.request" and message.get("more_body"):
        pass


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, door: Door) -> None:
        super().__init__(config)
        self._door = door

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._door.close()
        super().handle_exit(sig, frame)


async def listen(report: ReportObject, key: str, host: str, port: int, hold_s: float = HOLD_S) -> None:
    """Listen until SIGTERM."""
    door = Door(report, key, hold_s)
    limits: dict[str, Any] = {"limit_concurrency": _MOST_CONNECTIONS, "timeout_keep_alive": 5, "timeout_graceful_shutdown": _CLOSE_S}
    config = uvicorn.Config(
        door, host=host, port=port, lifespan="off", log_level="warning", access_log=False, server_header=False, **limits
    )
    await _Server(config, door).serve()


def main(environment: Mapping[str, str] = os.environ, server: ApiServer | None = None) -> int:
    report, key = ReportObject.of_this_pod(environment, server), environment.get(API_KEY)
    if report is None or not key:
        print(f"this program is a hub's to start: it needs an API server, TUNEYARD_ATTEMPT_NAME and {API_KEY}", file=sys.stderr)
        return 2
    asyncio.run(listen(report, key, "0.0.0.0", SERVED_PORT))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until the server listens
    sys.exit(main())
