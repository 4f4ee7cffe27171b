"""An order of columns in which the projections of an access log read few bytes.

A coalesced request also reads the holes between wanted columns. Columns that are read often, or read together, therefore belong side by
side, and columns that are never read belong at the end. Of three candidate orders, the cheapest under the log wins:

- the current order;
- popularity: by rows read, most first (Zhao et al. 2022, section 7.2);
- co-access: a chain from the most popular column, each step to the column with the most similar reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuneyard.data.tables.ranges import Coalescing

_LONGEST_CHAIN = 3000
"""With more columns in the log, the chain is not tried: its cost grows with the square of their number."""


@dataclass(frozen=True)
class ColumnReads:
    """The columns of a table with their mean bytes per row group (`sizes`), and the projections in the log with their rows."""

    columns: tuple[str, ...]
    sizes: npt.NDArray[np.float64]
    wanted: npt.NDArray[np.bool_]
    """[projection, column]"""
    rows: npt.NDArray[np.float64]
    """[projection]"""

    @classmethod
    def of(cls, sizes: Mapping[str, float], projections: Mapping[frozenset[str], int]) -> ColumnReads:
        """The reads of `projections`. Names that are not in `sizes` are ignored."""
        place = {name: index for index, name in enumerate(sizes)}
        wanted = np.zeros((len(projections), len(place)), bool)
        for number, projection in enumerate(projections):
            wanted[number, [place[name] for name in projection if name in place]] = True
        rows = np.fromiter(projections.values(), np.float64, len(projections))
        return cls(tuple(sizes), np.fromiter(sizes.values(), np.float64, len(sizes)), wanted, rows)

    def popularity(self) -> npt.NDArray[np.float64]:
        """Share of the log's rows that were read with each column."""
        share: npt.NDArray[np.float64] = self.rows @ self.wanted / max(self.rows.sum(), 1.0)
        return share

    def cost(self, order: npt.NDArray[np.int64], rule: Coalescing) -> float:
        """Bytes read with the columns in this order, summed over the log's rows, for one row group. Requests may have any length."""
        sizes, wanted = self.sizes[order], self.wanted[:, order]
        ends = np.cumsum(sizes)
        starts = ends - sizes
        total = 0.0
        for rows, mask in zip(self.rows, wanted, strict=True):
            taken = np.flatnonzero(mask)
            holes = starts[taken[1:]] - ends[taken[:-1]]
            total += rows * float(sizes[taken].sum() + holes[holes <= rule.hole_bytes].sum())
        return total


def best_order(reads: ColumnReads, rule: Coalescing) -> tuple[str, ...]:
    """The cheapest of the candidate orders."""
    as_is = np.arange(len(reads.columns), dtype=np.int64)
    popularity = reads.popularity()
    by_popularity = np.argsort(-popularity, kind="stable")
    candidates = [as_is, by_popularity]
    read = by_popularity[popularity[by_popularity] > 0]
    if 2 < len(read) <= _LONGEST_CHAIN:
        candidates.append(np.concatenate([_chain(reads, read), by_popularity[len(read) :]]))
    best = min(candidates, key=lambda order: reads.cost(order, rule))
    return tuple(reads.columns[index] for index in best)


def _chain(reads: ColumnReads, read: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """`read` (most popular first) as a chain; each next column has the highest weighted Jaccard similarity of reads to the last one."""
    weighted = (reads.wanted[:, read] * np.sqrt(reads.rows)[:, None]).astype(np.float32)
    together = weighted.T @ weighted
    alone = np.diag(together)
    similar = together / np.maximum(alone[:, None] + alone[None, :] - together, 1e-9)
    chain, left = [0], np.ones(len(read), bool)
    left[0] = False
    while left.any():
        following = int(np.argmax(np.where(left, similar[chain[-1]], -1.0)))
        chain.append(following)
        left[following] = False
    return read[chain]


def with_entries(columns: Sequence[str], entries: Mapping[str, Sequence[str]]) -> list[str]:
    """`columns` with the entries of each map column in front of it."""
    return [name for column in columns for name in (*entries.get(column, ()), column)]
