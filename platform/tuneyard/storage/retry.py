"""Retries after transient errors, for a bounded time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

RETRY_TOTAL_S = 60.0
"""How long an operation is retried while its store is unreachable."""
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0


def with_retries(
    action: Callable[[], Result],
    is_transient: Callable[[Exception], bool],
    *,
    total_s: float = RETRY_TOTAL_S,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """The result of `action`. Transient errors are retried with exponential backoff and jitter for up to `total_s`.

    Raises the last error of `action` after `total_s`, or at once where it is not transient.
    """
    deadline = clock() + total_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return action()
        except Exception as error:
            wait_s = pause_s * random.uniform(0.5, 1.0)
            if not is_transient(error) or clock() + wait_s > deadline:
                raise
            sleep(wait_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
