"""Statistics of rows in one pass over a data set: lengths, hashes, some samples. They take 8 bytes per row and 12 per distinct row."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from tuneyard.data.bad_sample import BadSample, LeftOut
from tuneyard.data.canonical import Canonical
from tuneyard.data.meaning.paths import value_at
from tuneyard.data.records import BadRow, Record
from tuneyard.data.roles import REQUIRED, canonical_json
from tuneyard.data.samples import Placed, Tally, lacking
from tuneyard.data.shown import plain_pieces

_BINS_AN_OCTAVE = 2
_KEPT = 20_000
_FIRST = 2
_Z = 1.96


@dataclass(frozen=True)
class Bin:
    """Number of samples with a length in [low, high)."""

    low: int
    high: int
    count: int


class RowStatistics:
    """Collects rows one by one. `canonical` None: the format is unknown, and rows are only counted."""

    def __init__(self, canonical: Canonical | None, tally: Tally) -> None:
        self._canonical, self._tally = canonical, tally
        self.characters = array("q")
        self.times: Counter[bytes] = Counter()
        """Hash of a sample -> number of its occurrences."""
        self.empty = 0
        self._loss_characters = 0
        self._first: list[Placed] = []
        self._kept: list[tuple[int, Placed]] = []
        self._every = 1

    @property
    def duplicate_fraction(self) -> float:
        return 1 - len(self.times) / len(self.characters) if self.characters else 0.0

    @property
    def loss_fraction(self) -> float | None:
        """Share of characters that carry loss."""
        total = sum(self.characters)
        return self._loss_characters / total if total else None

    def add(self, row: Record | BadRow) -> None:
        if isinstance(row, BadRow):
            self._tally.add_bad(row.place, row.reason, row.count, advice=row.advice)
            return
        if self._canonical is None:
            self._tally.good += 1
            return
        try:
            sample = self._canonical(row.values)
        except LeftOut:
            self._tally.left_out += 1
            return
        except BadSample as error:
            self.empty += _is_empty(self._canonical, row.values)
            self._tally.add_bad(row.place, lacking(self._canonical.roles, row.values) or str(error), advice=error.advice)
            return
        self._tally.good += 1
        pieces = plain_pieces(sample)
        size = sum(len(piece.text) for piece in pieces)
        self._loss_characters += sum(len(piece.text) for piece in pieces if piece.loss)
        self._keep(Placed(row.place, sample), size)
        self.characters.append(size)
        self.times[blake2b(canonical_json(sample).encode(), digest_size=12).digest()] += 1

    def _keep(self, placed: Placed, size: int) -> None:
        number = len(self.characters)
        if number < _FIRST:
            self._first.append(placed)
        elif number % self._every == 0:
            self._kept.append((size, placed))
            if len(self._kept) > _KEPT:
                self._kept, self._every = self._kept[1::2], 2 * self._every

    def spread(self, most: int, most_characters: int) -> list[Placed]:
        """The first samples, then an even selection of the others; at most `most` samples and about `most_characters` characters."""
        wanted = max(1, min(most - _FIRST, len(self._kept)))
        mean = max(1.0, sum(size for size, _ in self._kept) / max(1, len(self._kept)))
        wanted = max(1, min(wanted, int(most_characters / mean)))
        step = max(1.0, len(self._kept) / wanted)
        return [*self._first, *(self._kept[int(number * step)][1] for number in range(min(wanted, len(self._kept))))]


def _is_empty(canonical: Canonical, row: Mapping[str, Any]) -> bool:
    """Whether all required columns are empty."""
    if canonical.roles.form:
        return False
    values = [value_at(row, canonical.roles.columns[role]) for role in REQUIRED[canonical.roles.format]]
    return all(value is None or value in ([], {}) or (isinstance(value, str) and not value.strip()) for value in values)


def binned(lengths: Sequence[int]) -> list[Bin]:
    """A histogram of lengths with logarithmic bins, two per doubling."""
    counts = Counter(int(_BINS_AN_OCTAVE * math.log2(max(1, length)) + 1e-9) for length in lengths)
    if not counts:
        return []
    edges = {place: math.ceil(2 ** (place / _BINS_AN_OCTAVE) - 1e-9) for place in range(min(counts), max(counts) + 2)}
    bins = (Bin(edges[place], edges[place + 1], counts[place]) for place in range(min(counts), max(counts) + 1))
    return [each for each in bins if each.low < each.high or each.count]


def most_duplicates(times: Mapping[bytes, int], rows: int) -> float:
    """The upper end of a 95 % interval for the share of `rows` that repeat another row. `times`: occurrences of each row in a sample.

    A sample of n of N rows contains a pair of equal rows with probability (n / N)^2. The pairs in the sample, with Poisson's upper bound,
    therefore give the pairs in the whole. m equal rows are m (m - 1) / 2 pairs, at least as many as their m - 1 repetitions.
    """
    seen = sum(times.values())
    if seen < 2 or rows <= 0:
        return 0.0
    pairs = sum(count * (count - 1) // 2 for count in times.values())
    upper = (math.sqrt(pairs + 1) + _Z / 2) ** 2
    return min(1.0, upper * (rows / seen) ** 2 / rows)
