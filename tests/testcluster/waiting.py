"""Waiting for a condition, with words for what did not come about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(
    what: str, condition: Callable[[], T | None], *, limit_s: float = 240, every_s: float = 0.1, words: Callable[[], str] = str
) -> T:
    """The first true value of `condition`. `words` adds to the error what is known about why it did not come."""
    deadline = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {limit_s:.0f} s. {words()}".rstrip())
        time.sleep(every_s)
