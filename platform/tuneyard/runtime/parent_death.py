"""Processes that end with the process that has started them, also when that is killed."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_STOP_WHEN_PARENT_DIES = 1  # PR_SET_PDEATHSIG of prctl(2)
_LIBC = ctypes.CDLL(None, use_errno=True)


def stop_with_parent() -> Callable[[], None]:
    """A `preexec_fn`: the new process gets SIGTERM when the thread that starts it ends."""
    parent = os.getpid()

    def prepare() -> None:
        _LIBC.prctl(_STOP_WHEN_PARENT_DIES, signal.SIGTERM)
        if os.getppid() != parent:  # it died before
            os._exit(1)

    return prepare
