"""Deaths of an engine's ranks, at any moment: while they load, between two steps, and during a step.

A killed rank reaches the engine's process in three forms. vLLM's monitor sees the process end, and fails the executor. Or another rank
fails first, because its connection to the killed rank is closed: that error may arrive before the monitor has seen the death. Or nothing
comes: if a rank ends between its own `READY` and that of the slowest rank, vLLM waits for its message without a limit.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any, NoReturn

import psutil

_PREFIX = "rank-"
_ENDS_WITHIN_S = 10.0
"""A killed process may outlive its sockets, on a machine without a free core."""
_LOAD_RAISES_WITHIN_S = 60.0
_LOOK_EVERY_S = 1.0


class RankLost(Exception):
    """A rank was killed. The engine cannot be used any more; a new engine may replace it."""


def end_process(error: RankLost) -> NoReturn:
    """End this process as if it had been killed. Its owner replaces it, and scores its parts again."""
    print(f"the engine ends: {error}", file=sys.stderr, flush=True)
    os._exit(1)


def announce(folder: Path) -> None:
    """In a rank: leave its process id in the engine's folder."""
    with suppress(OSError):
        (folder / f"{_PREFIX}{os.getpid()}").touch()


def withdraw(folder: Path) -> None:
    """In a rank: it ends because of an error that it has reported. It is not lost."""
    with suppress(OSError):
        (folder / f"{_PREFIX}{os.getpid()}").unlink()


def any_ended(folder: Path) -> bool:
    """Whether a rank that has announced itself runs no more."""
    return any(_has_ended(int(path.name.removeprefix(_PREFIX))) for path in folder.glob(f"{_PREFIX}*"))


def ends_soon(folder: Path, within_s: float = _ENDS_WITHIN_S) -> bool:
    """Whether a rank has ended, or does so within `within_s`: after an error that a killed rank may have caused."""
    until = time.monotonic() + within_s
    while not any_ended(folder):
        if time.monotonic() >= until:
            return False
        time.sleep(0.1)
    return True


def wait_for_ends(executor: Any, within_s: float = _ENDS_WITHIN_S) -> bool:
    """Whether a rank of a running executor has ended, or does so within `within_s`. True only once all its ranks have ended.

    vLLM ends the other ranks, which takes up to 10 s while they wait in a collective for the lost one.
    """
    processes = [worker.proc for worker in executor.workers]
    if not executor.is_failed and not connection.wait([process.sentinel for process in processes], timeout=within_s):
        return False
    while any(process.is_alive() for process in processes):
        time.sleep(0.1)
    return True


@contextmanager
def never_waits_for_the_dead(
    folder: Path, end: Callable[[RankLost], object] = end_process, within_s: float = _LOAD_RAISES_WITHIN_S
) -> Iterator[None]:
    """Around the load of an engine: call `end` where a rank has ended, and the load neither raises nor returns within `within_s`."""
    returned = threading.Event()

    def look() -> None:
        while not returned.wait(_LOOK_EVERY_S):
            if any_ended(folder):
                if not returned.wait(within_s):
                    end(RankLost("a rank of the engine was killed while it loaded, and vLLM waits for it"))
                return

    threading.Thread(target=look, name="rank-deaths", daemon=True).start()
    try:
        yield
    finally:
        returned.set()


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
