"""The server of both consoles: what one connection may send."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from tuneyard.console.hosted import service
from tuneyard.console.http_limits import LARGEST_HEADERS, config_of
from tuneyard.console.safety import Guard, GuardRules


async def _app(_scope: Any, _receive: Any, _send: Any) -> None:
    raise AssertionError("no request is complete")


@pytest.mark.parametrize("config", [service._config(_app, 0), config_of(_app)], ids=["hub", "local"])
def test_a_header_without_end_is_refused(config: uvicorn.Config) -> None:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = service._Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        with socket.create_connection(listening.getsockname(), timeout=5) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"a" * 100_000)
            assert client.recv(100).startswith(b"HTTP/1.1 400 ")
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()


def test_a_large_header_that_comes_in_one_piece_is_refused() -> None:
    client = TestClient(Guard(_app, GuardRules(own_user_only=False)), base_url="http://127.0.0.1")
    answer = client.get("/", headers={"X-Long": "a" * LARGEST_HEADERS})
    assert answer.status_code == 431
