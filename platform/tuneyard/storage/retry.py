"""Trying again after errors that pass, for a bounded time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

RETRY_TOTAL_S = 60.0
"""How long a store is given to come back before an operation on it fails."""
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
    """What `action` returns; transient errors are tried again with exponential backoff and jitter until `total_s` is over.

    Raises what `action` raised last, once time is over or at once where the error is not transient.
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
