"""The web server of both consoles, with a limit on the headers of a request."""

from __future__ import annotations

from typing import Any

import uvicorn
from starlette.types import ASGIApp

LARGEST_HEADERS = 64 << 10
"""Bytes. Four cookies hold a session, and a proxy adds headers."""


def config_of(app: ASGIApp, **options: Any) -> uvicorn.Config:
    """A server that refuses headers above LARGEST_HEADERS, logs warnings alone, and does not name itself. `options`: of uvicorn.Config."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        http="h11",  # httptools, which uvicorn prefers, has no limit of headers
        h11_max_incomplete_event_size=LARGEST_HEADERS,
        lifespan="off",
        **options,
    )


def is_too_large(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether headers are above the limit. The server reads headers that come in one piece to their end, whatever their size."""
    return sum(len(name) + len(value) for name, value in headers) > LARGEST_HEADERS
