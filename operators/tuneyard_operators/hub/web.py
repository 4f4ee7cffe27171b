"""Serves /metrics, /healthz and /readyz of the hub."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import generate_latest

from tuneyard_operators.hub.metrics import Metrics


async def serve(
    port: int, metrics: Metrics, *, alive: Callable[[], str], ready: Callable[[], str], refresh: Callable[[], None]
) -> web.AppRunner:
    """Listen on `port`. `alive`, `ready`: return the problem, or an empty text. `refresh` updates the gauges before they are read."""

    async def answer_metrics(_request: web.Request) -> web.Response:
        refresh()
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": "text/plain; version=0.0.4"})

    def check(ask: Callable[[], str]) -> Callable[[web.Request], object]:
        async def answer(_request: web.Request) -> web.Response:
            problem = ask()
            return web.Response(text=problem or "ok", status=503 if problem else 200)

        return answer

    app = web.Application()
    app.router.add_get("/metrics", answer_metrics)
    app.router.add_get("/healthz", check(alive))  # type: ignore[arg-type]  # aiohttp names the handler's type more narrowly
    app.router.add_get("/readyz", check(ready))  # type: ignore[arg-type]
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
