"""A lease on a commit log. A lease of a living holder cannot be taken over; a lease of a dead holder can.

1. The holder writes a growing number (a beat) beside the log every few seconds.
2. A challenger reads this number repeatedly, with a pause before each read. It takes the lease over if the number has not changed for
   `dead_after_s`. It reads no clock, so a challenger that was itself suspended does not declare a living holder dead.
3. On the holder's own machine, and for later attempts of the same run, the challenger does not wait.

If a living holder is taken for dead (its machine was suspended for a minute), work is lost, but the log stays correct: it fences the old
holder.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, StorageError
from tuneyard.storage.commits import CommitLog, Fence, LogState
from tuneyard.storage.errors import NotFound
from tuneyard.storage.store import Store
from tuneyard.storage.uris import join

BEAT_S = 5.0
DEAD_AFTER_S = 30.0
"""A holder counts as dead after this long without a beat."""
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class Holder:
    """The holder of a log. `run`: a random id that only attempts of the same run share. `process`: detects a reused pid."""

    job: str
    attempt: int
    run: str
    host: str
    pid: int
    process: str

    @classmethod
    def this_process(cls, *, job: str, attempt: int, run: str) -> Holder:
        return cls(job, attempt, run, socket.gethostname(), os.getpid(), _process_mark(os.getpid()))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _process_mark(pid: int) -> str:
    """Boot id, pid namespace and start time of a process, which distinguish it from a later process with the same pid.

    Empty where there is no such process.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = Path("/proc/self/ns/pid").readlink().name
        started = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{boot}/{namespace}/{started}"


def is_gone(holder: Mapping[str, Any]) -> bool | None:
    """Whether the holder's process has ended: True if it has, False if it lives, None if this process cannot find out.

    It cannot find out on another machine, in another container, and after a restart of the machine. An equal host name proves nothing:
    clones of a machine share it, and so do containers in the host's network, whose processes do not see each other.
    """
    mark, ours = str(holder.get("process") or ""), _process_mark(os.getpid())
    if not mark or holder.get("host") != socket.gethostname() or mark.rpartition("/")[0] != ours.rpartition("/")[0]:
        return None
    return _process_mark(holder["pid"]) != mark


class Lease:
    """A held fence. It beats until it is closed, or until another attempt takes over; then `on_lost` is called, from a thread."""

    def __init__(
        self, store: Store, prefix: str, fence: Fence, *, beat_s: float = BEAT_S, on_lost: Callable[[], None] = lambda: None
    ) -> None:
        self.fence = fence
        self._log = CommitLog(store, prefix)  # used by this thread only
        self._on_lost = on_lost
        self._store = store
        self._path = _beat_path(prefix, fence.token)
        self._beat_s = beat_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="tuneyard-lease", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        count = 0
        while True:
            count += 1
            # An unreachable store must not end the job. If another attempt takes over meanwhile, the fence refuses this one.
            with contextlib.suppress(StorageError):
                self._store.put(self._path, str(count).encode())
                if self._log.read().token != self.fence.token:
                    self._on_lost()
                    return
            if self._done.wait(self._beat_s):
                return

    def close(self) -> None:
        """Stop beating and release the log. Raises StorageError if the release cannot be written: the holder then counts as dead later."""
        self._done.set()
        self._thread.join()
        self.fence.close()


def _beat_path(prefix: str, token: int) -> str:
    return join(prefix, f"beats/{token}")


def acquire(
    store: Store,
    prefix: str,
    holder: Holder,
    *,
    take_over: bool = False,
    on_wait: Callable[[str], None] = lambda _: None,
    on_lost: Callable[[], None] = lambda: None,
    dead_after_s: float = DEAD_AFTER_S,
    beat_s: float = BEAT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease:
    """Acquire the lease of the log under `prefix`. `take_over`: replace a living holder, by decision of the component that starts attempts.

    `on_wait` is called with a message for each holder that is watched. Raises BadInput with the holder's name if it is alive.
    """
    log = CommitLog(store, prefix)
    fence = None
    while fence is None:  # of several challengers of a dead holder, the first takes over, and the others check again
        state = log.read()
        if not (state.closed or take_over or _is_earlier_attempt(state, holder)):
            _check_dead(store, prefix, state, on_wait, dead_after_s, sleep)
        fence = log.open_after(state.token, holder.to_dict())
    return Lease(store, prefix, fence, beat_s=beat_s, on_lost=on_lost)


def _is_earlier_attempt(state: LogState, holder: Holder) -> bool:
    return state.holder.get("run") == holder.run and state.holder.get("attempt", 0) < holder.attempt


def _check_dead(
    store: Store,
    prefix: str,
    state: LogState,
    on_wait: Callable[[str], None],
    dead_after_s: float,
    sleep: Callable[[float], None],
) -> None:
    gone = is_gone(state.holder)
    if gone:
        return
    who = (
        f"{state.holder.get('job')}, attempt {state.holder.get('attempt')}, process {state.holder.get('pid')} on {state.holder.get('host')}"
    )
    if gone is None:
        on_wait(f"{who} has not released {store.url(prefix)}; watching for {dead_after_s:g} s whether it is alive")
        first = _last_beat(store, prefix, state.token)
        for _ in range(math.ceil(dead_after_s / _LOOK_EVERY_S)):
            sleep(_LOOK_EVERY_S)
            if _last_beat(store, prefix, state.token) != first:
                break
        else:
            return
    raise BadInput(
        f"{store.url(prefix)} is in use by {who}",
        "wait for it, stop it, or give this job another output folder (--out, storage.output)",
    )


def _last_beat(store: Store, prefix: str, token: int) -> bytes:
    try:
        return store.get(_beat_path(prefix, token))
    except NotFound:
        return b""
