"""A limit on the bytes of remote files that this process reads: a look at the first rows of a bucket must not download it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PIECE_BYTES = 1 << 20
"""Size of one request under a limit, instead of one for a whole block or column."""


class ReadLimit(Exception):
    """More bytes are asked for than may be read. It is no OSError, which readers take for damage."""


@dataclass
class Limit:
    """`read`: bytes so far, of `most`."""

    most: int
    read: int = 0

    def take(self, size: int) -> None:
        """Count bytes that are about to be read. Raises ReadLimit."""
        if self.read + size > self.most:
            raise ReadLimit(f"more than {self.most / 1e6:.0f} MB are needed for the first rows")
        self.read += size


_limit: Limit | None = None
"""Of all threads: small objects are read ahead in others."""


def limit() -> Limit | None:
    """The limit of this process; None: there is none."""
    return _limit


@contextmanager
def first_bytes(most: int) -> Iterator[Limit]:
    """No more than `most` bytes of remote files are read inside. Listings are not counted."""
    global _limit
    _limit = Limit(most)
    try:
        yield _limit
    finally:
        _limit = None
