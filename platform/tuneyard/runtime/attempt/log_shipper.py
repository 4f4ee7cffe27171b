"""Copies the logs of this machine's processes to the job's output while they grow. `tracking.task_logs` has their layout there.

A thread copies beside the training, which never waits for it: unreachable storage delays logs, and nothing else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuneyard.api import EnvVar, StorageError
from tuneyard.runtime.environment import hide
from tuneyard.storage import AlreadyExists, Store, open_store
from tuneyard.tracking.task_logs import Chunk, chunks_of, source_folder

_FIRST_PAUSE_S = 3.0
_LONGEST_PAUSE_S = 15.0
_PAUSE_GROWTH = 1.2
_CHUNK_BYTES = 1 << 20
_TAIL_BYTES = 1 << 18
_SHORTEST_SECRET_LINE = 6


@dataclass
class _Log:
    """A growing file, and the part that has been copied: its first `offset` bytes."""

    source: str
    path: Path
    offset: int = 0
    number: int = 0
    """Number of the last chunk written; 0 until the chunks in storage have been listed."""


class LogShipper:
    """Copies the added files, in a thread of its own, until it is closed."""

    def __init__(self, output: str, task: str, attempt: int, secrets: Sequence[str], *, pause_s: float = _FIRST_PAUSE_S) -> None:
        self._output, self._task, self._attempt = output, task, attempt
        self._secrets = list(secrets)
        self._pause_s = pause_s
        self._logs: dict[str, _Log] = {}
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._complete = True
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tuneyard-logs", daemon=True)
        self._thread.start()

    def add(self, source: str, path: str | Path) -> None:
        """Copy this file too, unless the source is known already."""
        with self._lock:
            self._logs.setdefault(source, _Log(source, Path(path)))

    def tail(self, source: str, lines: int) -> str:
        """The last lines of a source, from this machine's disk, without secrets."""
        with self._lock:
            log = self._logs.get(source)
        return hide(tail_of(log.path, lines), self._secrets) if log else ""

    def close(self, patience_s: float) -> bool:
        """Copy the rest, for at most `patience_s`. False if a part of it could not be stored."""
        self._done.set()
        self._thread.join(patience_s)
        return not self._thread.is_alive() and self._complete

    def _run(self) -> None:
        pause_s = self._pause_s
        while not self._done.wait(pause_s):
            self._ship(final=False)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * _PAUSE_GROWTH)
        self._ship(final=True)

    def _ship(self, *, final: bool) -> None:
        self._complete = True
        with self._lock:
            logs = list(self._logs.values())
        for log in logs:
            try:
                while self._ship_next(log, final=final):
                    pass
            except (StorageError, OSError):
                # The text stays on this disk, and is tried again in the next round. The other files would fail as well now.
                self._complete = False
                return

    def _ship_next(self, log: _Log, *, final: bool) -> bool:
        """Copy one chunk of whole lines; False if there is none."""
        raw = _next_lines(log, final=final)
        if not raw:
            return False
        store = self._opened()
        folder = source_folder(self._task, self._attempt, log.source)
        if log.number == 0:
            # The same source may have chunks from another machine: those of a rank that was started again in place.
            log.number = max((chunk.number for chunk in chunks_of(store.list(folder))), default=0)
        data = hide(raw.decode(errors="replace"), self._secrets).encode()
        while not _create(store, Chunk(self._task, self._attempt, log.source, log.number + 1).path, data):
            log.number += 1
        log.number += 1
        log.offset += len(raw)
        return True

    def _opened(self) -> Store:
        if self._store is None:
            self._store = open_store(self._output)
        return self._store


def _create(store: Store, path: str, data: bytes) -> bool:
    """Create a chunk. False if another chunk has this path."""
    try:
        store.create(path, data)
    except AlreadyExists:
        return store.get(path) == data  # perhaps this very write, whose answer was lost
    return True


def _next_lines(log: _Log, *, final: bool) -> bytes:
    """The new text of a log up to its last whole line; up to its end if it is `final`, or if one line fills a whole chunk."""
    if not log.path.exists():
        return b""
    with log.path.open("rb") as file:
        if log.path.stat().st_size < log.offset:
            log.offset = 0  # the file was rewritten
        file.seek(log.offset)
        raw = file.read(_CHUNK_BYTES)
    whole = raw[: raw.rfind(b"\n") + 1]
    return whole or (raw if final or len(raw) == _CHUNK_BYTES else b"")


def tail_of(path: Path, lines: int) -> str:
    """The last lines of a file, without blank ones; empty if the file does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join([line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("---")][-lines:])


def secrets_here(variables: Sequence[EnvVar]) -> list[str]:
    """Values of secrets in this process's environment, longest first: the job's, and those of the variables that the hub names in
    TUNEYARD_SECRETS (the cluster's own). A value with several lines adds each line too, because logs are copied line by line."""
    names = {variable.name for variable in variables if variable.value_from is not None}
    values = [os.environ.get(name, "") for name in {*names, *os.environ.get("TUNEYARD_SECRETS", "").split(",")}]
    lines = [line for value in values for line in value.splitlines() if len(line) >= _SHORTEST_SECRET_LINE]
    return sorted({value for value in [*values, *lines] if value}, key=len, reverse=True)
