"""Which engine scores which part: each has a share of its own, read front to back, and helps others when it is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Partition:
    """Parts in three states: waiting (in the share of a rank), held by a rank, done. Every part ends done, whoever dies on the way."""

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
        """The next part for `rank`: of its own share, else the last one of the largest share left. None: nothing waits."""
        share = self._waiting[rank] or max(self._waiting, key=len)
        if not share:
            return None
        part = share.popleft() if share is self._waiting[rank] else share.pop()
        self._held[part] = rank
        return part

    def done(self, part: int) -> None:
        """`part` was committed by the rank that holds it."""
        del self._held[part]

    def give_back(self, rank: int) -> list[int]:
        """`rank` died: what it held waits again, at the front of its share. Returns those parts."""
        parts = self.held_by(rank)
        for part in reversed(parts):
            del self._held[part]
            self._waiting[rank].appendleft(part)
        return parts


def parts_at_once(*, batch: int, rows_per_part: int, requests_per_row: int) -> int:
    """Parts an engine holds so that it never runs dry between two: one that ends, and enough rows to fill the batch beside it."""
    return 1 + max(1, -(-batch * 5 // 4 // (rows_per_part * requests_per_row)))
