"""The fork server: `python -P -m tuneyard.warm.server --socket PATH --modules a,b [--absent c,d] [--owner FD]`.

1. The server listens, so that early clients wait instead of starting cold.
2. It imports the stack. Between two modules it serves requests that need only the modules loaded so far.
3. It freezes the objects of the stack, so that garbage collection in children copies no memory pages.
4. It serves. One thread with one `select` handles requests, exits of children, disconnected clients, and the end of the owner.

In a child, `load` or `serve` returns the request to run. The server's frames have then returned, and the child ends like any Python
process.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.warm import child, compatibility, forkable, wire
from tuneyard.warm.stack import without

_MOST_EVENTS = 100
"""Maximum number of polls between two modules of the stack, so that loading proceeds."""
_NO_DESCRIPTORS_PAUSE_S = 0.1
_ASK_LIMIT_S = 2.0
"""A client that takes longer than this to send its request is dropped, because no other client is served meanwhile."""


class CannotFork(Exception):
    """The stack is loaded, and cannot be forked."""


@dataclass
class _Forked:
    """A child, and the client that requested it."""

    pid: int
    exits: int
    """Descriptor that becomes readable when the child ends."""
    client: socket.socket


@dataclass(frozen=True)
class _Waiting:
    """A request that needs modules that are not loaded yet."""

    request: dict[str, Any]
    descriptors: list[int]


class Server:
    """The fork server. `absent`: modules that were hidden from the stack. `environment`: the process's environment at its start, without
    variables for the stack only. `owner`: a descriptor that closes with the owner, or None. `packages`: `compatibility.packages` before the
    stack was loaded. `secret`: names of variables that the stack did not get."""

    def __init__(
        self,
        listener: socket.socket,
        absent: Sequence[str],
        environment: dict[str, str],
        owner: int | None,
        packages: list[int],
        secret: Sequence[str],
    ) -> None:
        self._listener, self._absent, self._environment, self._owner = listener, set(absent), environment, owner
        self._packages, self._secret = packages, set(secret)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ, self._end)
        if owner is not None:
            self._selector.register(owner, selectors.EVENT_READ, self._end)
        self._clients: set[socket.socket] = set()
        self._waiting: dict[socket.socket, _Waiting] = {}
        self._forked: dict[int, _Forked] = {}
        self._loaded: set[str] = set()
        self._loading, self._ended = True, False
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._told_to_end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def load(self, modules: Sequence[str]) -> dict[str, Any] | None:
        """Import the stack. Returns None; in a child that was forked meanwhile, the request to run.

        Raises CannotFork if the loaded stack cannot be forked.
        """
        gc.disable()  # it takes a third of the time of imports
        with without(sorted(self._absent)):
            for module in modules:
                importlib.import_module(module)
                self._loaded.add(module)
                if (request := self._serve_meanwhile()) is not None or self._ended:
                    return request
        if why := forkable.obstacle():
            raise CannotFork(why)
        gc.freeze()
        gc.enable()
        self._loading = False
        return None

    def serve(self) -> dict[str, Any] | None:
        """Serve requests. Returns, in a child, the request to run; in the server None, after the end of the owner or SIGTERM."""
        while not self._ended:
            if (request := self._serve_waiting() or self._handle(self._selector.select())) is not None:
                return request
        for forked in list(self._forked.values()):
            _kill(forked.pid)
        return None

    def _serve_meanwhile(self) -> dict[str, Any] | None:
        for _ in range(_MOST_EVENTS):
            events = self._selector.select(0)
            if not events:
                break
            if (request := self._handle(events)) is not None or self._ended:
                return request
        return self._serve_waiting()

    def _handle(self, events: Sequence[tuple[selectors.SelectorKey, int]]) -> dict[str, Any] | None:
        for key, _ in events:
            # Of several ready sources, one handler may have closed another source.
            if self._selector.get_map().get(key.fd) is key and (request := key.data(key.fileobj)) is not None:
                return dict(request)
        return None

    def _serve_waiting(self) -> dict[str, Any] | None:
        for client, waiting in list(self._waiting.items()):
            if self._has_loaded_for(waiting.request):
                del self._waiting[client]
                if (request := self._fork_and_close(client, waiting.request, waiting.descriptors)) is not None:
                    return request
        return None

    def _has_loaded_for(self, request: dict[str, Any]) -> bool:
        return not self._loading or request.get("after") in self._loaded

    def _told_to_end(self, *_signal: object) -> None:
        if self._loading:  # an import may take seconds, and does not poll
            for forked in self._forked.values():
                _kill(forked.pid)
            os._exit(0)
        self._woken.send(b".")

    def _end(self, _source: Any) -> None:
        self._ended = True

    def _accept(self, _listener: Any) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # no descriptor is free until some client closes
            time.sleep(_NO_DESCRIPTORS_PAUSE_S)
            return
        with contextlib.suppress(OSError):
            if _user(client) != os.geteuid():
                client.close()
                return
            client.settimeout(_ASK_LIMIT_S)
            self._clients.add(client)
            self._selector.register(client, selectors.EVENT_READ, self._asked)

    def _asked(self, client: socket.socket) -> dict[str, Any] | None:
        """Handle a readable client. Its first message is a request; after that, only the end of the stream is valid, and ends the child."""
        forked = next((forked for forked in self._forked.values() if forked.client is client), None)
        descriptors: list[int] = []
        try:
            received = wire.receive(client, _ASK_LIMIT_S)
            if received is not None:
                request, descriptors = received
            if received is None or forked is not None or client in self._waiting:
                self._gone(client, forked)
                return None
            why = self._refusal(request, descriptors)
            if why:
                wire.send(client, {"refused": why})
                self._gone(client, None)
                return None
            taken, descriptors = descriptors, []
            if self._has_loaded_for(request):
                return self._fork_and_close(client, request, taken)
            self._waiting[client] = _Waiting(request, taken)
        except Exception as error:  # noqa: BLE001 - a bad request must not stop the server
            print(f"a request is dropped: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            self._gone(client, forked)
        finally:
            _close(descriptors)
        return None

    def _fork_and_close(self, client: socket.socket, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any] | None:
        try:
            if why := forkable.obstacle():
                wire.send(client, {"refused": why})
                self._gone(client, None)
                return None
            return self._fork(client, request, descriptors)
        except OSError as error:
            print(f"a request is dropped: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            self._gone(client, None)
            return None
        finally:
            _close(descriptors)

    def _refusal(self, request: dict[str, Any], descriptors: Sequence[int]) -> str:
        if not isinstance(request.get("after", ""), str):
            raise TypeError("`after` is not the name of a module")
        if len(descriptors) != request["descriptors"]:
            return "descriptors were lost in transfer"
        if request["python"] != compatibility.python():
            return f"it runs {sys.executable}"
        if self._packages != compatibility.packages():
            return "packages were installed or changed since it started"
        if other := compatibility.other_setting(self._environment, request["environment"], self._secret):
            return f"{other} had another value when it started"
        missing = self._absent.intersection(request.get("needs", []))
        return f"it was started without {', '.join(sorted(missing))}" if missing else ""

    def _fork(self, client: socket.socket, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any] | None:
        if _has_left(client):  # the client has given up and started cold
            self._gone(client, None)
            return None
        # Signals to the child stay pending until its handlers are reset.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            wire.send(client, {"refused": f"it cannot fork: {error.strerror}"})
            self._gone(client, None)
            return None
        if pid == 0:
            try:
                gc.freeze()
                gc.enable()
                self._forget_all()
                child.become(request, list(descriptors))
            except BaseException:  # noqa: BLE001 - a child must never continue as a second server
                traceback.print_exc()
                os._exit(1)
            descriptors.clear()
            return request
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            forked = _Forked(pid, os.pidfd_open(pid), client)
            self._selector.register(forked.exits, selectors.EVENT_READ, lambda _: self._exited(forked))
        except OSError:
            _kill(pid)
            os.waitpid(pid, 0)
            raise
        self._forked[pid] = forked
        with contextlib.suppress(OSError):  # a client that is gone is noticed by the end of its stream
            wire.send(client, {"pid": pid})
        return None

    def _forget_all(self) -> None:
        """In a child: close all descriptors of the server."""
        self._selector.close()
        for each in (self._listener, self._wake, self._woken, *self._clients):
            each.close()
        for waiting in self._waiting.values():
            _close(waiting.descriptors)
        for forked in self._forked.values():
            os.close(forked.exits)
        if self._owner is not None:
            os.close(self._owner)

    def _exited(self, forked: _Forked) -> None:
        _kill(forked.pid)  # kills its children; until waitpid, its pid and process group are not reused
        _, status = os.waitpid(forked.pid, 0)
        self._selector.unregister(forked.exits)
        os.close(forked.exits)
        del self._forked[forked.pid]
        with contextlib.suppress(OSError):
            wire.send(forked.client, {"status": status})
        if forked.client in self._clients:
            self._gone(forked.client, None)

    def _gone(self, client: socket.socket, forked: _Forked | None) -> None:
        self._selector.unregister(client)
        self._clients.discard(client)
        client.close()
        if (waiting := self._waiting.pop(client, None)) is not None:
            _close(waiting.descriptors)
        if forked is not None:
            _kill(forked.pid)


def _kill(pid: int) -> None:
    """Kill a child and its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _has_left(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    finally:
        client.settimeout(_ASK_LIMIT_S)


def _user(client: socket.socket) -> int:
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return int(user)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tuneyard.warm.server", description="Forks processes that have a stack loaded.")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--listener", type=int, help="descriptor of a socket that already listens there")
    parser.add_argument("--modules", required=True, help="modules to import, separated by commas")
    parser.add_argument("--absent", default="", help="modules to hide from the stack, separated by commas")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a variable for the stack only")
    parser.add_argument("--secret", default="", help="names of variables that this server did not get, separated by commas")
    parser.add_argument("--owner", type=int, help="descriptor that ends the server when it is closed")
    options = parser.parse_args()
    environment = dict(os.environ)
    os.environ.update(pair.split("=", 1) for pair in options.set)
    absent = [name for name in options.absent.split(",") if name]
    listener = wire.listen(options.socket) if options.listener is None else socket.socket(fileno=options.listener)
    wire.tell_why_ended(options.socket, "")
    packages, own = compatibility.packages(), _inode(options.socket)
    try:
        server = Server(listener, absent, environment, options.owner, packages, options.secret.split(","))
        request = server.load(options.modules.split(",")) or server.serve()
    except CannotFork as error:
        wire.tell_why_ended(options.socket, f"the fork server refused: {error}")
        sys.exit(f"this stack cannot be forked: {error}")
    except Exception as error:
        first_line = f"{type(error).__name__}: {error}".partition("\n")[0]
        wire.tell_why_ended(options.socket, f"the fork server ended: {first_line}")
        raise
    finally:
        if os.getpid() == _SERVER and _inode(options.socket) == own:  # otherwise another server has replaced it
            options.socket.unlink(missing_ok=True)
    if request is not None:
        child.run(request)
    sys.stderr.flush()
    os._exit(0)  # without Python's finalisation, which takes half a second


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


_SERVER = os.getpid()

if __name__ == "__main__":
    main()
