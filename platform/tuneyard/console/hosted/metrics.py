"""The console's metrics for Prometheus, and the ASGI middleware that counts requests by page and code."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class ConsoleMetrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        one = self.registry
        self.requests = Counter("tuneyard_console_requests", "answers of the console", ["page", "code"], registry=one)
        self.seconds = Histogram("tuneyard_console_request_seconds", "time to the first byte of an answer", ["page"], registry=one)
        self.streams = Gauge("tuneyard_console_streams", "live pages that are open", registry=one)


class Counted:
    """The page is the path of its route: names of jobs are no label. Requests without a route count as `none`."""

    def __init__(self, app: ASGIApp, metrics: ConsoleMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                page = str(getattr(scope.get("route"), "path", "none"))
                self._metrics.requests.labels(page, str(message["status"])).inc()
                self._metrics.seconds.labels(page).observe(time.monotonic() - began)
            await send(message)

        await self._app(scope, receive, counted)
