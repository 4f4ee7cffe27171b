"""Runs the console of a hub: the pages on one port, and metrics and health on another, in one loop, until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import uvicorn
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tuneyard.console.hosted.metrics import ConsoleMetrics
from tuneyard.console.http_limits import config_of

_GRACE_S = 5
"""How long open event streams may hold up the end."""


class _Server(uvicorn.Server):
    """Two servers share the loop: `serve` handles the signals."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


async def serve(app: ASGIApp, metrics: ConsoleMetrics, *, port: int, metrics_port: int) -> None:
    """Answer on both ports of all addresses until SIGTERM or SIGINT."""
    pages = _Server(_config(app, port))
    servers = (pages, _Server(_config(_operations(metrics, pages), metrics_port)))

    def end() -> None:
        for each in servers:
            each.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    try:
        await asyncio.gather(*(each.serve() for each in servers))
    finally:
        end()


def _config(app: ASGIApp, port: int) -> uvicorn.Config:
    # The address of a request is that of its connection: networks of proxies are checked against it.
    return config_of(app, host="", port=port, proxy_headers=False, timeout_graceful_shutdown=_GRACE_S)


def _operations(metrics: ConsoleMetrics, pages: uvicorn.Server) -> Starlette:
    async def told(_request: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type="text/plain; version=0.0.4")

    async def healthy(_request: Request) -> Response:
        return PlainTextResponse("ok")

    async def ready(_request: Request) -> Response:
        up = pages.started and not pages.should_exit
        return PlainTextResponse("ok" if up else "the pages are not served", 200 if up else 503)

    return Starlette(routes=[Route("/metrics", told), Route("/healthz", healthy), Route("/readyz", ready)])
