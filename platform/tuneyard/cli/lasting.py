"""Output that may be lost: a full disk below a log, or a reader that has gone, fails no run. The report of the run tells the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast


@contextmanager
def lasting_output() -> Iterator[None]:
    """Text that stdout or stderr cannot take is left out, without an error."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Lasting(stream)) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        for stream in streams:
            _empty(stream)


class _Lasting:
    """A text stream whose writes do not fail."""

    def __init__(self, below: TextIO) -> None:
        self._below = below

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._below.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with suppress(OSError):
            self._below.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


def _empty(stream: TextIO) -> None:
    """Drop the text that a stream cannot write. Python would try again at its end, and exit with code 120."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            stream.flush()
