"""Rows that are made while they are read: what texts and tables have in common for whoever prepares, orders and reports them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tuneyard.data.stream.rows import StreamTally


class Streamed(Protocol):
    """Rows that are made while they are read."""

    tally: StreamTally

    @property
    def epoch_rows(self) -> int:
        """Rows of an epoch, or an estimate: the same in every attempt."""

    def cursor(self, position: int) -> dict[str, Any]:
        """What `place` takes, in another process or on another machine, to go on at `position`."""

    def place(self, cursor: Mapping[str, Any]) -> None:
        """Raises BadInput where the cursor was made on other data."""
