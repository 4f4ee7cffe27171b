"""One line per stage, with its seconds, to stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def stage(name: str) -> Iterator[None]:
    start = time.monotonic()
    try:
        yield
    except BaseException:
        say(f"{name:<44} failed after {time.monotonic() - start:.1f} s")
        raise
    say(f"{name:<44} {time.monotonic() - start:6.1f} s")
