"""Client rebatching: batches as large as row groups become batches of N rows.

A batch inside a row group is a slice and copies nothing. Only a batch over the border of two row groups is put together from its pieces.
(Zhao et al. 2022, section 5.2: large batches in storage and workers, the trainer's batch size in the client.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Piece:
    """Decoded rows of one row group. `first`: the row of the group at which they begin."""

    unit: int
    first: int
    rows: pa.RecordBatch


@dataclass(frozen=True)
class Place:
    """The next row to be read: in row group `unit` of the reader's list, at row `row` of it."""

    unit: int
    row: int


@dataclass(frozen=True)
class Cut:
    """Rows [start, start + count) of a piece."""

    piece: Piece
    start: int
    count: int

    @property
    def rows(self) -> pa.RecordBatch:
        """Without a copy."""
        return self.piece.rows.slice(self.start, self.count)


def cut(pieces: Iterable[Piece], rows: int, *, drop_last: bool = False) -> Iterator[tuple[list[Cut], Place]]:
    """Batches of `rows` rows in the order of `pieces`, as what they are put together from, each with the place after it; the last may be
    shorter, or is dropped."""
    held: list[Cut] = []
    missing = rows
    after = Place(0, 0)
    for piece in pieces:
        at, size = 0, piece.rows.num_rows
        while at < size:
            taken = min(missing, size - at)
            held.append(Cut(piece, at, taken))
            at, missing = at + taken, missing - taken
            after = Place(piece.unit, piece.first + at) if at < size else Place(piece.unit + 1, 0)
            if missing == 0:
                yield held, after
                held, missing = [], rows
    if held and not drop_last:
        yield held, after


def joined(cuts: Sequence[Cut]) -> pa.RecordBatch:
    """The rows of a batch: a slice where it lies in one piece, else a copy."""
    return cuts[0].rows if len(cuts) == 1 else pa.concat_batches([each.rows for each in cuts])
