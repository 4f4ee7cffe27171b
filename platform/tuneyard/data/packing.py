"""Packs samples into rows of at most `max_length` tokens without splitting a sample: best-fit decreasing (Johnson 1974; used for language
models by Ding et al. 2024, "Fewer Truncations Improve Language Modeling").

Long documents are cut into pieces before, so that no text is lost and short documents stay whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def best_fit_decreasing(lengths: Sequence[int] | npt.NDArray[np.int64], capacity: int) -> list[list[int]]:
    """Pack items of `lengths` (1..capacity) into rows. Returns rows of item numbers: ascending in a row, rows by their first item.

    Each item, longest first, is put into the row where it leaves the least space. O(n) steps, each a search of a bit set of free spaces.
    Raises ValueError for an item longer than `capacity`.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    if sizes.size and (sizes.max() > capacity or sizes.min() < 1):
        raise ValueError(f"lengths must be within 1..{capacity}")
    rows: list[list[int]] = []
    rows_by_space: dict[int, list[int]] = {}
    spaces = 0  # bit s is set while some row has exactly s tokens of free space
    for item in np.argsort(-sizes, kind="stable"):
        size = int(sizes[item])
        fitting = spaces >> size
        if fitting:
            space = size + (fitting & -fitting).bit_length() - 1
            row = rows_by_space[space].pop()
            if not rows_by_space[space]:
                spaces ^= 1 << space
        else:
            space, row = capacity, len(rows)
            rows.append([])
        rows[row].append(int(item))
        if left := space - size:
            rows_by_space.setdefault(left, []).append(row)
            spaces |= 1 << left
    for items in rows:
        items.sort()
    return sorted(rows)


def laid_out(
    lengths: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64], max_length: int, *, pack: bool, together: int = 1
) -> list[list[int]]:
    """Rows of the numbers of `chosen` samples, each of up to `max_length` tokens: packed, or as they are. `together`: that many samples in
    turn share a row, which is as many times as long.
    """
    groups = chosen.reshape(-1, together)
    if not pack:
        return [list(map(int, group)) for group in groups]
    rows = best_fit_decreasing(lengths[groups].sum(axis=1), max_length * together)
    return [[int(item) for place in row for item in groups[place]] for row in rows]


def piece_borders(length: int, capacity: int) -> list[tuple[int, int]]:
    """[start, end) of the pieces of a document of `length` tokens. A last piece of one token is dropped: it has no loss."""
    pieces = [(start, min(start + capacity, length)) for start in range(0, length, capacity)]
    return pieces if len(pieces) == 1 or pieces[-1][1] - pieces[-1][0] > 1 else pieces[:-1]


def efficiency(rows: int, tokens: int, capacity: int) -> float:
    """Share of the rows' places that hold tokens (0..1); 0 for rows without places, such as rows of tables."""
    return tokens / (rows * capacity) if rows * capacity else 0.0
