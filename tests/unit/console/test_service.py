"""The server of both consoles: what one connection may send."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from tuneyard.console import http_limits
from tuneyard.console.hosted import service
from tuneyard.console.http_limits import LARGEST_HEADERS, config_of
from tuneyard.console.safety import Guard, GuardRules


async def _app(_scope: Any, _receive: Any, _send: Any) -> None:
    raise AssertionError("no request is complete")


@contextmanager
def serving(config: uvicorn.Config) -> Iterator[tuple[str, int]]:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = service._Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield listening.getsockname()
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()


@pytest.mark.parametrize("config", [service._config(_app, 0), config_of(_app)], ids=["hub", "local"])
def test_a_header_without_end_is_refused(config: uvicorn.Config) -> None:
    with serving(config) as address, socket.create_connection(address, timeout=5) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"a" * 100_000)
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")


async def _says_what_it_was_sent(_scope: Any, receive: Any, send: Any) -> None:
    body = (await receive()).get("body", b"")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
    await asyncio.sleep(0.6)  # an answer may take longer than its request
    await send({"type": "http.response.body", "body": body or b"all"})


WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
HALVES = {
    "nothing": b"",
    "half a header": b"GET / HTTP/1.1\r\nHost: a\r\nX-Half: ",
    "half a body": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
    "half a second request": WHOLE + b"GET / HT",
}


@pytest.mark.parametrize("sent", HALVES.values(), ids=HALVES)
def test_a_connection_without_a_whole_request_is_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(http_limits, "REQUEST_S", 0.3)
    with (
        serving(service._config(_says_what_it_was_sent, 0)) as address,
        socket.create_connection(address, timeout=20) as client,
    ):
        client.sendall(sent)
        received = b"".join(iter(lambda: client.recv(1000), b""))
        assert received.count(b"all") == sent.count(WHOLE), "whole requests are answered to their end, then the server hangs up"


def test_a_large_header_that_comes_in_one_piece_is_refused() -> None:
    client = TestClient(Guard(_app, GuardRules(own_user_only=False)), base_url="http://127.0.0.1")
    answer = client.get("/", headers={"X-Long": "a" * LARGEST_HEADERS})
    assert answer.status_code == 431
