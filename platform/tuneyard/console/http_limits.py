"""The web server of both consoles, with limits on the headers of a request, and on the time until a request is whole."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

LARGEST_HEADERS = 64 << 10
"""Bytes. Four cookies hold a session, and a proxy adds headers."""
REQUEST_S = 20.0
"""Time until a request is whole, from the connection or the answer before; a connection without one is closed then."""
_INCOMPLETE = (h11.IDLE, h11.SEND_BODY)


def config_of(app: ASGIApp, **options: Any) -> uvicorn.Config:
    """A server that closes connections without a whole request, refuses headers above LARGEST_HEADERS, logs warnings alone, and does not
    name itself. `options`: of uvicorn.Config."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        http=_LimitedProtocol,  # of h11: httptools, which uvicorn prefers, has no limit of headers
        h11_max_incomplete_event_size=LARGEST_HEADERS,
        lifespan="off",
        **options,
    )


def is_too_large(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether headers are above the limit. The server reads headers that come in one piece to their end, whatever their size."""
    return sum(len(name) + len(value) for name, value in headers) > LARGEST_HEADERS


class _LimitedProtocol(H11Protocol):
    """uvicorn ends a connection that is silent after an answer, but waits without end for a first request, or for the rest of one."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end_watch()

    def _watch(self) -> None:
        if self.conn.their_state not in _INCOMPLETE or self.transport.is_closing():
            self._end_watch()
        elif self._limit is None:
            self._limit = self.loop.call_later(REQUEST_S, self.transport.close)

    def _end_watch(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
