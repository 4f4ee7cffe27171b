"""Client rebatching: row groups become batches of N rows.

A batch inside a row group is a slice and copies nothing. Only a batch across two row groups is concatenated from its pieces. (Zhao et al.
2022, section 5.2: large batches in storage and workers, the trainer's batch size in the client.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Piece:
    """Decoded rows of one row group, which is `unit` in the reader's list. `first`: the number in the group of the first row."""

    unit: int
    first: int
    rows: pa.RecordBatch


@dataclass(frozen=True)
class Place:
    """The next row to read. `unit`: its row group in the reader's list; `row`: its number in the row group."""

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
        """The rows as a slice, without a copy."""
        return self.piece.rows.slice(self.start, self.count)


def cut(pieces: Iterable[Piece], rows: int, *, drop_last: bool = False) -> Iterator[tuple[list[Cut], Place]]:
    """Batches of `rows` rows, in the order of `pieces`. Each is a list of cuts, with the place after it.

    The last batch may be shorter; with `drop_last` it is then dropped.
    """
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
