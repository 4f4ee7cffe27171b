"""The server of a hub's console: what one connection may send."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import uvicorn

from tuneyard.console.hosted import service


async def _app(_scope: Any, _receive: Any, _send: Any) -> None:
    raise AssertionError("no request is complete")


def test_a_header_without_end_is_refused() -> None:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = service._Server(service._config(_app, 0))
    assert isinstance(server, uvicorn.Server)
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
