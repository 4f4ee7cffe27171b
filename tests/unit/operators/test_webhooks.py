"""Messages to webhooks on real HTTP servers of this process: once, with retries, to allowed hosts alone, without secrets in a status."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from tests.clusters.hub_in_memory import until
from tests.servers.memory_api import MemoryApi

from tuneyard.api.schedule_parts import Notify
from tuneyard.api.schedule_status import ScheduledRun
from tuneyard_operators.hub.webhooks import Webhooks
from tuneyard_operators.kube import SECRET

KEY = ("maps", "nightly")
RUN = ScheduledRun(
    name="nightly-1", due="2026-11-23T02:00:00Z", verdict="regressed", message="<!channel> *worse* <http://evil|x>", notice="due"
)


@asynccontextmanager
async def server(*answers: Any) -> AsyncIterator[tuple[str, list[Any]]]:
    """A server that gives these answers, the last one again and again. An answer is a status, a redirect, or a coroutine function."""
    got: list[Any] = []

    async def take(request: web.Request) -> web.StreamResponse:
        got.append(await request.json())
        answer: int | str | Callable[[], Awaitable[None]] = answers[min(len(got), len(answers)) - 1]
        if isinstance(answer, str):
            raise web.HTTPTemporaryRedirect(answer)
        if not isinstance(answer, int):
            await answer()
            return web.Response()
        return web.Response(status=answer)

    app = web.Application()
    app.router.add_post("/{path:.*}", take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://127.0.0.1:{port}/services/SECRET-PATH", got
    await runner.cleanup()


async def told(url: str, *, hosts: tuple[str, ...] = ("127.0.0.*",), **notify: Any) -> str:
    api = MemoryApi()
    data = {"url": base64.b64encode(url.encode()).decode()}
    await api.create(SECRET, "maps", {"metadata": {"name": "hook"}, "data": data})
    address = notify.pop("address", {"webhookFrom": {"secretKeyRef": {"name": "hook", "key": "url"}}})
    webhooks = Webhooks(api, hosts, pauses_s=(0.01, 0.01))  # type: ignore[arg-type]
    for _ in range(3):
        webhooks.send(KEY, Notify.model_validate({**address, **notify}), [RUN])
    outcome = (await until(lambda: webhooks.told(KEY), "the outcome is known"))["nightly-1"]
    webhooks.send(KEY, Notify.model_validate(address), [RUN])
    await asyncio.sleep(0.02)
    assert "SECRET-PATH" not in outcome
    return outcome


def test_one_message_per_run_after_failures_of_the_server() -> None:
    async def story() -> None:
        async with server(500, 429, 200) as (url, got):
            assert await told(url) == "sent"
            assert len(got) == 3
            assert (got[0]["schedule"], got[0]["occasion"], got[0]["name"]) == ("nightly", "regressed", "nightly-1")

    asyncio.run(story())


def test_markup_in_texts_reaches_slack_as_text() -> None:
    async def story() -> None:
        async with server(200) as (url, got):
            assert await told(url, form="slack") == "sent"
            assert "&lt;!channel&gt;" in got[0]["text"]
            assert "<" not in got[0]["text"]

    asyncio.run(story())


def test_refusals_and_redirects_are_final() -> None:
    async def story() -> None:
        async with server(200) as (elsewhere, other), server(elsewhere) as (url, got):
            assert await told(url) == "not sent: 127.0.0.1 answers with a redirect, which is not followed"
            assert (len(got), other) == (1, [])
        async with server(404) as (url, got):
            assert await told(url) == "not sent: 127.0.0.1 answers 404"
            assert len(got) == 1

    asyncio.run(story())


def test_the_hub_posts_to_no_host_that_is_not_allowed() -> None:
    async def story() -> None:
        async with server(200) as (url, got):
            outcome = await told(url, hosts=("hooks.slack.com",))
            assert outcome.startswith("not sent: the hub may not post to 127.0.0.1")
            assert (await told("file:///etc/passwd")).startswith("not sent: its address is no URL")
            assert (await told(f"http://hooks.slack.com@{url[7:]}", hosts=("hooks.slack.com",))).startswith("not sent: the hub may not")
            assert got == []

    asyncio.run(story())


def test_a_missing_secret_and_a_server_that_is_away_are_said() -> None:
    async def story() -> None:
        nobody = {"webhookFrom": {"secretKeyRef": {"name": "nobody", "key": "url"}}}
        assert await told("", address=nobody) == "not sent: the hub cannot read the Secret nobody"
        no_key = {"webhookFrom": {"secretKeyRef": {"name": "hook", "key": "other"}}}
        assert await told("", address=no_key) == "not sent: the Secret hook has no key other"
        assert (await told("http://127.0.0.1:1/SECRET-PATH")).startswith("not sent: 127.0.0.1 cannot be reached")

    asyncio.run(story())


def test_a_server_that_hangs_delays_nobody() -> None:
    async def story() -> None:
        async with server(lambda: asyncio.sleep(30)) as (url, _):
            webhooks = Webhooks(MemoryApi(), ["127.0.0.1"])  # type: ignore[arg-type]
            webhooks.send(KEY, Notify(webhook=url), [RUN])
            await asyncio.sleep(0.05)
            assert webhooks.told(KEY) == {}

    asyncio.run(story())
