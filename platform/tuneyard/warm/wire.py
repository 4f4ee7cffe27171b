"""The protocol between a fork server and its clients. Standard library only: the shim runs without site-packages on `sys.path`.

A message is a length and a JSON object over a Unix stream socket; file descriptors are sent with its first byte. The server answers a
request with `{"pid": N}` or `{"refused": why}`. After the end of the process it sends `{"status": N}`, the status of `os.waitpid`. If the
client closes the connection before, the server kills the process.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LENGTH = struct.Struct("!I")
_MOST_BYTES = 16 << 20
_MOST_DESCRIPTORS = 8
_LONGEST_PATH = 100
"""Longest path to use directly: the address of a Unix socket holds 107 characters."""


def send(connection: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one message with copies of `descriptors`. Raises OSError where the other side is gone."""
    body = json.dumps(message).encode()
    data = _LENGTH.pack(len(body)) + body
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    if rest := data[connection.sendmsg([data], rights) :]:  # an empty send would fail too, once the other side has its message and is gone
        connection.sendall(rest)


def receive(connection: socket.socket, limit_s: float | None = None) -> tuple[dict[str, Any], list[int]] | None:
    """The next message with its descriptors, which the caller must close; None at the end of the stream.

    `limit_s`: time limit for the whole message; None: no limit. Raises OSError, also for an invalid message.
    """
    descriptors = array.array("i")
    deadline = None if limit_s is None else time.monotonic() + limit_s
    try:
        _set_time(connection, deadline)
        data, ancillary, _, _ = connection.recvmsg(_LENGTH.size, socket.CMSG_SPACE(_MOST_DESCRIPTORS * descriptors.itemsize))
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
        if not data:
            return None
        (length,) = _LENGTH.unpack(data + _exactly(connection, _LENGTH.size - len(data), deadline))
        if length > _MOST_BYTES:
            raise OSError(f"a message of {length} bytes is too long")
        message = json.loads(_exactly(connection, length, deadline))
        if not isinstance(message, dict):
            raise OSError("not a message: no object")
    except BaseException as error:
        for descriptor in descriptors:
            os.close(descriptor)
        if isinstance(error, ValueError | RecursionError):
            raise OSError(f"not a message: {error}") from error
        raise
    return message, list(descriptors)


def _set_time(connection: socket.socket, deadline: float | None) -> None:
    if deadline is not None:
        connection.settimeout(max(0.001, deadline - time.monotonic()))


def _exactly(connection: socket.socket, count: int, deadline: float | None) -> bytes:
    parts = []
    while count:
        _set_time(connection, deadline)
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise OSError("the message ended early")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def request_here(argv: Sequence[str], *, target: str = "") -> dict[str, Any]:
    """A request to start `argv` with this process's environment, working folder, limits, cores and ignored signals.

    `target`: `module:function` to call instead of the script in `argv`.
    """
    import resource
    import signal
    import sys

    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    return {
        "argv": list(argv),
        "target": target,
        "python": [sys.executable, list(sys.version_info[:3])],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": _umask(),
        "limits": limits,
        "cores": sorted(os.sched_getaffinity(0)),
        "oom_score_adj": _oom_score_adj(),
        "ignored_signals": [int(number) for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN],
    }


def _umask() -> int:
    """The umask, read from /proc: `os.umask` would change it for files that other threads create meanwhile."""
    status = Path("/proc/self/status").read_text()
    return int(next((line.split()[1] for line in status.splitlines() if line.startswith("Umask:")), "022"), 8)


def _oom_score_adj() -> int:
    try:
        return int(Path("/proc/self/oom_score_adj").read_text())
    except (OSError, ValueError):
        return 0


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """An address for the socket at `path`, for paths of any length."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen(path: Path) -> socket.socket:
    """A listening socket that only this user can reach. A socket file of a dead server at `path` is replaced.

    The socket is bound under another name and renamed once it listens, so that `path` always accepts connections.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        beside.unlink(missing_ok=True)
        os.fchmod(listener.fileno(), 0o600)
        with reachable(beside) as address:
            listener.bind(address)
        beside.chmod(0o600)
        listener.listen(128)
        beside.rename(path)
    except OSError:
        listener.close()
        beside.unlink(missing_ok=True)
        raise
    return listener


def tell_why_ended(path: Path, why: str) -> None:
    """Leave beside the socket at `path` why its server ends, for `why_ended`. "": remove what an earlier server has left."""
    beside = _last_words(path)
    with contextlib.suppress(OSError):  # a full disk: clients then learn only that no server answers
        if why:
            beside.write_text(why)
        else:
            beside.unlink(missing_ok=True)


def why_ended(path: Path) -> str:
    """What the server of the socket at `path` has left as the reason for its end; "" if nothing."""
    try:
        return _last_words(path).read_text().strip()
    except OSError:
        return ""


def _last_words(path: Path) -> Path:
    return path.with_name(f"{path.name}.ended")


def connect(path: Path, timeout_s: float) -> socket.socket:
    """A connection to the server at `path`. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with reachable(path) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection
