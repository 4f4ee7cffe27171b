"""Assigns parts to engines. Each engine has its own share, processed in order, and then takes parts of other shares."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Partition:
    """Parts in three states: waiting (in the share of a rank), held by a rank, done. A part of a dead rank waits again."""

    def __init__(self, parts: Iterable[int], ranks: int) -> None:
        """Split `parts` among `ranks` in contiguous blocks that differ by at most one part."""
        ordered = sorted(parts)
        self._waiting = [deque(ordered[len(ordered) * r // ranks : len(ordered) * (r + 1) // ranks]) for r in range(ranks)]
        self._held: dict[int, int] = {}

    @property
    def finished(self) -> bool:
        return not self._held and not any(self._waiting)

    @property
    def outstanding(self) -> int:
        """Parts that are not done: waiting or held."""
        return len(self._held) + sum(map(len, self._waiting))

    def held_by(self, rank: int) -> list[int]:
        """Parts that `rank` holds, in order."""
        return sorted(part for part, holder in self._held.items() if holder == rank)

    def take(self, rank: int) -> int | None:
        """The next part for `rank`: from its own share, else the last part of the largest remaining share. None: no part waits."""
        share = self._waiting[rank] or max(self._waiting, key=len)
        if not share:
            return None
        part = share.popleft() if share is self._waiting[rank] else share.pop()
        self._held[part] = rank
        return part

    def done(self, part: int) -> None:
        """Mark a part as committed by its holder."""
        del self._held[part]

    def give_back(self, rank: int) -> list[int]:
        """Return all parts of a dead rank to the front of its share, where they wait again. Returns these parts."""
        parts = self.held_by(rank)
        for part in reversed(parts):
            del self._held[part]
            self._waiting[rank].appendleft(part)
        return parts


def parts_at_once(*, batch: int, rows_per_part: int, requests_per_row: int) -> int:
    """Number of parts in an engine that keeps its batch full between parts: one part that ends, and enough rows to fill the batch."""
    return 1 + max(1, -(-batch * 5 // 4 // (rows_per_part * requests_per_row)))
