"""A table cut into splits and windows, from its footers alone. Pure: a copy of the files gives the same cut.

A split is a run of whole row groups, because Parquet is decoded by row groups. The size of flat rows is estimated from the number of values
per column in the footer of the first file with rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tuneyard.data.stream.splits import Piece, Split
from tuneyard.data.stream.windows import Windows
from tuneyard.data.tables import Table
from tuneyard.data.tables.ranges import leaves
from tuneyard.ranking.columns import holds_texts, is_list
from tuneyard.ranking.config import RankerConfig

SPLIT_BYTES = 8 << 20
"""Least size of a split, in bytes of flat rows; a smaller table is one split."""
WINDOW_BYTES = 256 << 20
"""Bytes of flat rows in a window, unless its minimum of splits is larger."""
FIRST_BYTES = 64 << 20
"""Bytes of the first window, for which the first step waits."""
_FEWEST_SPLITS, _MOST_SPLITS_OF_WINDOW, _MOST_SPLITS = 4, 256, 20_000
_VALUE_BYTES, _HASH_BYTES = 4, 8


@dataclass(frozen=True)
class CutTable:
    """Splits of a table. `rows`: rows drawn from each split, fewer than it has if a limit ends inside it; `firsts`: number of its first row
    in the table; `row_bytes`: estimated size of a flat row.
    """

    splits: tuple[Split, ...]
    rows: tuple[int, ...]
    firsts: tuple[int, ...]
    row_bytes: float

    @classmethod
    def of(cls, table: Table, config: RankerConfig, limit: int | None = None) -> Self:
        """The cut of the first `limit` rows of a table, or of all. A table without rows has no split."""
        row_bytes = flat_row_bytes(table, config)
        wanted = min(table.rows, limit or table.rows)
        least = max(1, round(max(SPLIT_BYTES / row_bytes, wanted / _MOST_SPLITS)))
        splits, rows, firsts, first = list[Split](), list[int](), list[int](), 0
        for groups in _runs(table, least):
            if first >= wanted:
                break
            held = sum(table.files[file].group_rows[group] for file, group in groups)
            splits.append(Split(len(splits), _pieces(table, groups, row_bytes)))
            rows.append(min(held, wanted - first))
            firsts.append(first)
            first += held
        return cls(tuple(splits), tuple(rows), tuple(firsts), row_bytes)

    def windows(self, seed: int, *, shuffle: bool) -> Windows:
        """Windows of about WINDOW_BYTES, each with at least four splits."""
        mean = max(1.0, sum(self.rows) * self.row_bytes / len(self.splits))
        most = _power_of_two(min(max(WINDOW_BYTES / mean, _FEWEST_SPLITS), _MOST_SPLITS_OF_WINDOW))
        first = _power_of_two(min(max(FIRST_BYTES / mean, 1), most))
        return Windows(len(self.splits), seed, shuffle, first, most=most)


def flat_row_bytes(table: Table, config: RankerConfig) -> float:
    """Estimated bytes of a flat row: numbers and labels, and for each sparse feature the ids per row in the first file with rows. An entry
    of a map counts as one id.
    """
    fixed = float(_VALUE_BYTES * (len(config.dense) + len(config.tasks) + len(config.sparse)))
    file = next((file for file in table.files if sum(file.group_rows)), None)
    footer: Any = file.footer if file is not None else None
    if file is None or footer is None:  # a footer that is too large to be kept
        return fixed
    places, ids = leaves(file.schema), 0.0
    for feature in config.sparse:
        at = file.schema.get_field_index(feature.name)
        if at < 0 or not is_list(file.schema.field(at).type):
            continue
        size = _HASH_BYTES if holds_texts(file.schema.field(at).type) else _VALUE_BYTES
        (leaf,) = places[feature.name]
        ids += size * sum(footer.row_group(group).column(leaf).num_values for group in range(footer.num_row_groups))
    return fixed + ids / sum(file.group_rows)


def _runs(table: Table, least: int) -> Iterator[list[tuple[int, int]]]:
    """Consecutive row groups, in runs of at least `least` rows; empty ones are left out."""
    run, held = list[tuple[int, int]](), 0
    for file, group in table.row_groups:
        rows = table.files[file].group_rows[group]
        if not rows:
            continue
        run.append((file, group))
        held += rows
        if held >= least:
            yield run
            run, held = [], 0
    if run:
        yield run


def _pieces(table: Table, groups: Sequence[tuple[int, int]], row_bytes: float) -> tuple[Piece, ...]:
    """Pieces of files. Neighbouring row groups of one file are one piece."""
    pieces = list[Piece]()
    for file, group in groups:
        size = round(table.files[file].group_rows[group] * row_bytes)
        last = pieces[-1] if pieces else None
        if last is not None and (last.file, last.end) == (file, group):
            pieces[-1] = Piece(file, last.start, group + 1, last.size_bytes + size)
        else:
            pieces.append(Piece(file, group, group + 1, size))
    return tuple(pieces)


def _power_of_two(number: float) -> int:
    """The largest power of two that is not above `number`."""
    return 1 << (max(1, int(number)).bit_length() - 1)
