"""Live pages: how many are open at once, of all readers and of one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tuneyard.cluster import HubError, NotLoggedIn
from tuneyard.console import streams as live
from tuneyard.console.hub.reader import Reader
from tuneyard.console.streams import SHARE, Look, Streams


def ask(streams: Streams, reader: str) -> Response:
    source = SimpleNamespace(navigation=(), label="a hub")
    app = SimpleNamespace(state=SimpleNamespace(source=source, sign_in=False))
    scope = {"type": "http", "method": "GET", "path": "/live", "query_string": b"", "headers": [], "app": app, "state": {"token": ""}}
    return streams.follow(Request({**scope, "server": ("127.0.0.1", 1)}), lambda seen: Look(seen, "", False), reader=reader)


async def opened(streams: Streams, reader: str) -> Any:
    answer = ask(streams, reader)
    assert isinstance(answer, StreamingResponse)
    events: Any = answer.body_iterator
    await anext(events)
    return events


def test_no_reader_takes_the_live_pages_of_others() -> None:
    async def told() -> None:
        streams = Streams(most=SHARE + 2)
        first, *_ = [await opened(streams, "ada") for _ in range(SHARE)]
        refused = ask(streams, "ada")
        assert refused.status_code == 429
        assert b"<b>Next:</b>" in refused.body
        for _ in range(2):
            await opened(streams, "eve")
        assert ask(streams, "ivy").status_code == 503
        await first.aclose()
        assert streams.open == SHARE + 1
        await opened(streams, "ada")

    asyncio.run(told())


def test_a_stream_without_changes_has_comments_for_proxies_that_end_silent_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    async def told() -> list[str]:
        monkeypatch.setattr(Request, "is_disconnected", lambda _: asyncio.sleep(0, False))
        events = await opened(Streams(every_s=0.01), "ada")
        return [await anext(events) for _ in range(2)]

    monkeypatch.setattr(live, "_SILENT_S", 0.0)
    assert asyncio.run(told()) == [": no change\n\n"] * 2


def test_a_reader_is_the_same_under_several_tokens() -> None:
    def reader(answer: Any, name: str = "") -> Reader:
        def user() -> str:
            if isinstance(answer, Exception):
                raise answer
            return str(answer)

        hub: Any = SimpleNamespace(user=user)
        return Reader(hub, name=name)

    assert reader("ada").identity == reader("ada").identity == "ada"
    assert reader("the console", "grace").identity == "grace"
    assert reader(HubError("the hub cannot say")).identity == ""
    with pytest.raises(NotLoggedIn):
        _ = reader(NotLoggedIn("expired")).identity
