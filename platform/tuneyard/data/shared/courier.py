"""The process of a machine that fetches and stores shards for the ranks of a job and their data workers.

Data workers are forks of a rank, and the clients of object stores do not survive a fork. One process beside them also has the time limits
and the counts of the whole machine. Ranks and workers ask it over a socket; where it does not answer, shards are built as without a tier.

    python -m tuneyard.data.shared.courier SOCKET JSON-OF-THE-PLACE
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import socketserver
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import Any

from tuneyard.data.shared.place import Counts, SharedShards, Wanted

_START_S = 20.0
_STOP_S = 2.0
_POLL_S = 0.02
_ANSWER_S = 15.0
"""A courier that takes longer than this is not asked again: it is above the longest fetch."""
_LAST_ANSWER_S = 90.0
_NICE = 5
_lost: set[str] = set()
"""Sockets of couriers that this process no longer asks."""


@dataclass(frozen=True)
class Courier:
    """The shared shards of a machine, for any process there. It can be pickled; on another machine only `place` is of use."""

    place: SharedShards
    address: str

    def fetch(self, wanted: Wanted) -> bool:
        return bool(self._ask({"do": "fetch", **_written(wanted)}).get("fetched"))

    def refuse(self, wanted: Wanted, why: str) -> None:
        self._ask({"do": "refuse", "why": why, **_written(wanted)})

    def store(self, wanted: Wanted, build_s: float) -> None:
        self._ask({"do": "store", "build_s": build_s, **_written(wanted)})

    def finish(self, marks: frozenset[str]) -> Counts | None:
        """Wait for stores under way, for a bounded time, and return the counts of this machine; None if the courier is gone.

        `marks`: of the shards that rank 0 has read.
        """
        answer = self._ask({"do": "finish", "marks": sorted(marks)}, _LAST_ANSWER_S)
        return Counts(**answer["counts"]) if "counts" in answer else None

    def _ask(self, question: dict[str, Any], limit_s: float | None = None) -> dict[str, Any]:
        if self.address in _lost:
            return {}
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(_ANSWER_S if limit_s is None else limit_s)
                line.connect(self.address)
                line.sendall(json.dumps(question).encode() + b"\n")
                with line.makefile("rb") as answer:
                    found: dict[str, Any] = json.loads(answer.readline())
                    return found
        except TimeoutError:
            _lost.add(self.address)
        except (OSError, ValueError):  # it is gone
            pass
        return {}


def _written(wanted: Wanted) -> dict[str, str]:
    return {"name": wanted.name, "path": str(wanted.path), "mark": wanted.mark}


# --- in ranks


class _Connection:
    """The courier of this rank's machine. `starts`: whether this rank starts it; the others find it."""

    def __init__(self, courier: Courier, *, starts: bool) -> None:
        self._courier, self._starts, self._waited = courier, starts, False
        self._process = _started(courier) if starts else None
        self._owner = os.getpid()

    @property
    def courier(self) -> Courier:
        """The courier, once it listens."""
        if not self._waited:
            self._waited = True
            if not (_is_ready(self._process) if self._starts else _is_there(self._courier)):
                _lost.add(self._courier.address)
        return self._courier

    def close(self) -> None:
        """End the courier. What it still stores is left out: `Courier.finish` waits for that."""
        if self._process is None or self._owner != os.getpid():
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        _remove(Path(self._courier.address))


_here: _Connection | None = None


def shared_here() -> Courier | None:
    """The shared shards of this process; None without a tier. In a rank, see `sharing`."""
    return _here.courier if _here is not None else None


@contextmanager
def sharing(place: SharedShards | None, run: str) -> Iterator[None]:
    """Let the streams that this process opens use shared shards. The first rank of a machine starts the courier. `run`: a text that only
    the ranks of one attempt have in common.
    """
    global _here
    if place is None:
        yield
        return
    named = sha256(f"{place.uri} {place.team} {run}".encode()).hexdigest()[:16]
    address = Path(tempfile.gettempdir()) / f"tuneyard-shards-{os.getuid()}-{named}" / "socket"
    _here = _Connection(Courier(place, str(address)), starts=os.environ.get("LOCAL_RANK", "0") == "0")
    try:
        yield
    finally:
        _here.close()
        _here = None


def _started(courier: Courier) -> Popen[bytes] | None:
    """A courier that starts meanwhile. None: it cannot, and shards are built."""
    command = [sys.executable, "-P", "-m", "tuneyard.data.shared.courier", courier.address, json.dumps(asdict(courier.place))]
    try:
        return Popen(command, stdin=PIPE, stdout=PIPE)
    except OSError:
        return None


def _is_ready(process: Popen[bytes] | None) -> bool:
    """Whether a courier that this process has started listens; waits for it."""
    if process is None:
        return False
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], _START_S)[0] and process.stdout.readline())


def _is_there(courier: Courier) -> bool:
    """Whether a courier that another rank starts listens; waits for it."""
    deadline = time.monotonic() + _START_S
    while not Path(courier.address).exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


# --- in the courier


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: str, place: SharedShards) -> None:
        from tuneyard.data.shared.tier import Tier

        self.tier = Tier(place)
        super().__init__(address, _Question)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        do = question["do"]
        if do == "finish":
            return {"counts": asdict(self.tier.finish(frozenset(question["marks"])))}
        wanted = Wanted(question["name"], Path(question["path"]), question["mark"])
        if do == "fetch":
            return {"fetched": self.tier.fetch(wanted)}
        if do == "refuse":
            self.tier.refuse(wanted, question["why"])
        else:
            self.tier.store(wanted, question["build_s"])
        return {}


class _Question(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        with suppress(OSError):  # a worker that was killed while it waited
            question = self.rfile.readline()
            if question:
                self.wfile.write(json.dumps(self.server.answer(json.loads(question))).encode() + b"\n")


def _remove(address: Path) -> None:
    with suppress(OSError):
        address.unlink(missing_ok=True)
        address.parent.rmdir()


def main() -> None:
    """Serve until the rank that started this process is gone, which closes the standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the ranks, which end in order
    with suppress(OSError):
        os.nice(_NICE)
    address, place = Path(sys.argv[1]), SharedShards(**json.loads(sys.argv[2]))
    address.parent.mkdir(mode=0o700, exist_ok=True)
    about = address.parent.lstat()
    if about.st_uid != os.getuid() or about.st_mode & 0o077:
        sys.exit(f"{address.parent} belongs to another user, or is open to others: shards are not shared")
    address.unlink(missing_ok=True)
    server = _Server(str(address), place)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    _remove(address)
    os._exit(0)  # threads may wait for a volume that does not answer


if __name__ == "__main__":
    main()
