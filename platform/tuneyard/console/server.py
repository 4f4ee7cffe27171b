"""Runs the console on a loopback port until it is interrupted."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

import uvicorn

from tuneyard.api import BadInput
from tuneyard.console.app import Source, create_app
from tuneyard.console.http_limits import config_of

HOST = "127.0.0.1"
PORT = 7420
"""Taken where it is free and no other is asked for."""
_GRACE_S = 1
"""How long open event streams may hold up the end."""


def serve(source: Source, *, port: int | None = None, on_ready: Callable[[str], None]) -> None:
    """Answer on 127.0.0.1 until Ctrl-C. `on_ready` gets the address once it answers.

    `port` None: PORT, or any free one. Raises BadInput where the port is taken.
    """
    listening = _bound(port)
    address = f"http://{HOST}:{listening.getsockname()[1]}/"
    config = config_of(create_app(source), timeout_graceful_shutdown=_GRACE_S)
    try:
        _Server(config, lambda: on_ready(address)).run([listening])
    finally:
        listening.close()
        source.close()


class _Server(uvicorn.Server):
    """Calls back once it listens."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def _bound(port: int | None) -> socket.socket:
    try:
        return _listening(PORT if port is None else port)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            return _listening(0)
        raise BadInput(f"port {port} of {HOST} cannot be used: {error.strerror}", "choose another with --port, or leave it out") from error


def _listening(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HOST, port))
    except OSError:
        made.close()
        raise
    return made
