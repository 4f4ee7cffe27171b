"""The server of a serve task, as a Ray actor on the task's machine. It runs what `tuneyard serve` runs."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from tuneyard.api import BadInput, FailureKind, JobFailed
from tuneyard.api.serve import API_KEY, SERVED_PORT
from tuneyard.runtime.gang.mailbox import RankProcess, this_process
from tuneyard.runtime.gang.process_log import output_to
from tuneyard.runtime.serve.arguments import Wishes, command_of, environment_of, settings_of
from tuneyard.runtime.serve.models import served_models
from tuneyard.runtime.serve.ports import check_address, url_of
from tuneyard.runtime.serve.process import ServerProcess

_LOOK_S = 1.0
_ALL_ADDRESSES, _HERE = "0.0.0.0", "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class ServeOrder:
    """`models`: URIs and Hugging Face names; `names`: what requests call them, or empty. `in_pod`: whether other machines reach the server,
    at a fixed port; else this machine alone does, at a free port."""

    models: tuple[str, ...]
    names: tuple[str, ...]
    wishes: Wishes
    sku: str
    in_pod: bool
    folder: Path


@dataclass(frozen=True)
class Look:
    """`idle_s`: seconds without a request since the server was ready."""

    ready: bool
    idle_s: float = 0.0


class ModelServer:
    """The actor. Calls run one after the other in the thread whose end ends the server."""

    def __init__(self, order: ServeOrder, log: Path) -> None:
        self._order, self._place = order, this_process(0, str(log))
        self._log = ExitStack()
        self._log.enter_context(output_to(log, attempt=1))
        self._ready_at: float | None = None

    def place(self) -> RankProcess:
        return self._place

    def begin(self) -> str:
        """Find, fetch and check the models, and start the server. Returns its address on this machine. Raises TuneyardError."""
        order = self._order
        key = os.environ.get(API_KEY)
        host = _ALL_ADDRESSES if order.in_pod else _HERE
        port = _port(host, has_key=bool(key), fixed=order.in_pod)
        order.folder.mkdir(parents=True, exist_ok=True)
        folder = Path(mkdtemp(prefix="server-", dir=order.folder))  # its name tells this server from others
        served = served_models(order.models, order.names, folder, trust=order.wishes.trust_remote_code)
        settings = settings_of(served, order.wishes, sku=order.sku)
        environment = environment_of(served, settings, key, folder)
        self._server = ServerProcess(command_of(served, settings, host, port), environment, print, tells_start=True)
        self._url = url_of(host, port)
        return self._url

    def look(self) -> Look:
        """Whether the server answers, after a second at most. Raises JobFailed where it has ended."""
        until = time.monotonic() + _LOOK_S
        try:
            if self._ready_at is None:
                if not self._server.wait_until_ready(self._url, lambda: time.monotonic() > until, lambda _: None):
                    return Look(ready=False)
                self._ready_at = time.monotonic()
            self._server.wait(lambda: time.monotonic() > until)
        except JobFailed as error:  # one that has served before may do so again
            kind = error.kind if self._ready_at is None else FailureKind.NODE_LOST
            raise JobFailed(error.cause, "its log says more: tuneyard logs", kind=kind) from error
        return Look(ready=True, idle_s=min(self._server.idle_s(self._url), time.monotonic() - self._ready_at))

    def close(self) -> None:
        """End the server, once its answers in flight are given, for as long as it takes at most."""
        self._server.end()


def _port(host: str, *, has_key: bool, fixed: bool) -> int:
    try:
        return check_address(host, SERVED_PORT, has_key=has_key)
    except BadInput:
        if fixed:
            raise
        return check_address(host, 0, has_key=has_key)
