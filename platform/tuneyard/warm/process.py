"""Starts a process by a fork server, or cold, with the same handle for both."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tuneyard.warm import wire

WHY_COLD = "TUNEYARD_WHY_COLD"
"""Environment variable of Ray's workers: the reason why a worker was started cold although a fork was requested."""
_CONNECT_LIMIT_S = 5.0
_READY_LIMIT_S = 60.0
"""Time limit for the server's reply. A server that imports for longer is slower than a cold start."""
_STATUS_LIMIT_S = 20.0
"""Time limit for the exit status of an ended process. The server may be importing a module before it sends the status."""


class Started(Protocol):
    """A running process. Return codes as in `subprocess.Popen`: negative for the signal that ended it."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the return code. Raises subprocess.TimeoutExpired."""
        ...

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...


class Forked:
    """A process that a fork server has started. The server kills the process and its children when this handle's owner dies.

    If the server dies first, the process continues, but its exit code is lost: it then counts as killed.
    """

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self._connection: socket.socket | None = connection
        self._code: int | None = None
        self._lock = threading.Lock()
        """Guards the descriptors: one thread may kill the process while another waits for it."""
        try:
            self._exits: int | None = os.pidfd_open(pid)
        except ProcessLookupError:  # it has ended already; the server sends its status
            self._exits = None

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while self._code is None:
            sources = [source for source in (self._connection, self._exits) if source is not None]
            ready = _ready(sources, None if until is None else max(0.0, until - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired("forked process", timeout or 0.0)
            if self._connection in ready:
                self._hear()
            elif self._connection is None or not _ready([self._connection], _STATUS_LIMIT_S):
                self._end(-signal.SIGKILL)
        return self._code

    def send_signal(self, number: int, /) -> None:
        with self._lock:
            if self._exits is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._exits, number)

    def kill(self) -> None:
        """Kill the process and its process group."""
        with self._lock:
            if self._exits is not None and not _ready([self._exits], 0.0):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
        self.send_signal(signal.SIGKILL)

    def _hear(self) -> None:
        assert self._connection is not None
        try:
            received = wire.receive(self._connection)
        except OSError:
            received = None
        if received is not None:
            self._end(os.waitstatus_to_exitcode(received[0]["status"]))
            return
        self._connection.close()
        self._connection = None
        if self._exits is None:
            self._end(-signal.SIGKILL)

    def _end(self, code: int) -> None:
        with self._lock:
            self._code = code
            if self._connection is not None:
                self._connection.close()
            if self._exits is not None:
                os.close(self._exits)
            self._connection = self._exits = None


class Cold:
    """A process that was started without a server, in its own session."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def wait(self, timeout: float | None = None) -> int:
        code = self._process.wait(timeout)
        self._kill_group()
        return code

    def send_signal(self, number: int, /) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process and its process group."""
        if self._process.poll() is None:
            self._kill_group()
        self._process.kill()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def _ready(sources: Sequence[socket.socket | int], limit_s: float | None) -> list[socket.socket | int]:
    """Wait up to `limit_s` for readable sources, and return them. (`select` does not support descriptors above 1023.)"""
    poll = select.poll()
    by_number = {source if isinstance(source, int) else source.fileno(): source for source in sources}
    for number in by_number:
        poll.register(number, select.POLLIN | select.POLLHUP)
    return [by_number[number] for number, _ in poll.poll(None if limit_s is None else math.ceil(limit_s * 1000))]


def ask(
    server: Path,
    argv: Sequence[str],
    *,
    target: str = "",
    descriptors: Sequence[int] = (),
    needs: Sequence[str] = (),
    after: str = "",
    limit_s: float = _READY_LIMIT_S,
) -> Forked:
    """A process forked by the server at `server`; see `start`. Raises OSError with the reason where there is none.

    `after`: a module of the stack. The process is forked as soon as this module is loaded; it needs no later module.
    """
    try:
        connection = wire.connect(server, _CONNECT_LIMIT_S)
    except OSError as error:
        raise OSError(wire.why_ended(server) or f"no fork server answers at {server} ({error.strerror or error})") from error
    try:
        connection.settimeout(limit_s)
        given = [0, 1, 2, *descriptors]
        wanted = {"needs": list(needs), "after": after, "descriptors": len(given)}
        wire.send(connection, {**wire.request_here(argv, target=target), **wanted}, given)
        received = wire.receive(connection)
        if received is None:
            raise ConnectionError
        if "pid" not in received[0]:
            raise OSError(f"the fork server refuses: {received[0].get('refused')}")
        connection.settimeout(None)
        return Forked(connection, int(received[0]["pid"]))
    except TimeoutError as error:
        connection.close()
        raise OSError(f"the fork server at {server} did not answer within {limit_s:g} s") from error
    except ConnectionError as error:
        connection.close()
        raise OSError(wire.why_ended(server) or "the fork server ended") from error
    except OSError:
        connection.close()
        raise


def start_cold(target: str, arguments: Sequence[str] = (), *, descriptors: Sequence[int] = ()) -> Cold:
    """The same process as from `start`, without a server."""
    module, _, function = target.partition(":")
    command = [sys.executable, "-P", "-c", f"from {module} import {function}; {function}()", *arguments, *map(str, descriptors)]
    return Cold(subprocess.Popen(command, pass_fds=descriptors, start_new_session=True))


def start(
    server: Path | None,
    target: str,
    arguments: Sequence[str] = (),
    *,
    descriptors: Callable[[], Sequence[int]] = tuple,
    needs: Sequence[str] = (),
) -> tuple[Started, str]:
    """A process that calls `target` (`module:function`), and the reason for a cold start (empty for a fork).

    The process has this process's environment, folder and standard streams. Its `sys.argv` holds `arguments`, then the numbers of
    `descriptors` in the process. `descriptors` is called again before a cold start, so that an abandoned fork does not share descriptors
    with the process that replaces it. `server`: socket of a fork server, or None. `needs`: modules that must not be hidden from its stack.
    Raises OSError where no process can be started.
    """
    why = ""
    if server is not None:
        try:
            given = descriptors()
            places = [str(3 + index) for index in range(len(given))]
            return ask(server, [target, *arguments, *places], target=target, descriptors=given, needs=needs), ""
        except OSError as error:
            why = str(error)
    return start_cold(target, arguments, descriptors=descriptors()), why
