"""The interface of rows that are built while they are read, for texts and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tuneyard.data.stream.rows import Stream, StreamTally


class Streamed(Protocol):
    """Rows that are built while they are read."""

    tally: StreamTally
    stream: Stream[Any]

    @property
    def epoch_rows(self) -> int:
        """Rows of an epoch, possibly estimated; the same in every attempt."""

    @property
    def mark(self) -> str:
        """A hash of the files by their metadata: their content is not read whole. Empty: the cursor itself compares the files."""

    def cursor(self, position: int) -> dict[str, Any]:
        """A cursor for `place`, to resume at `position` in another process or on another machine."""

    def place(self, cursor: Mapping[str, Any]) -> None:
        """Resume from a cursor. Raises BadInput where it belongs to other data."""
