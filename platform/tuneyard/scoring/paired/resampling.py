"""Whether the difference of two models on the same rows is real. Pure: randomness comes from a fixed seed.

Intervals: the paired bootstrap. Rows are drawn with replacement, and both models are judged on the same draw (Efron and Tibshirani 1993,
section 8; Koehn 2004 for corpus metrics). Bounds are percentiles of 2,000 draws.

The p-value: paired randomisation, where the answers of the two models to each unit are exchanged or not at random (Noreen 1989; Riezler and
Maxwell 2005). It is exact for equal models however few rows differ, which the bootstrap is not: of 4 rows that differ, all favour the same
model in 1 of 8 cases, and then most draws of a bootstrap do too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tuneyard.metrics import Interval, Totals
from tuneyard.scoring.paired.row_sums import Numbers
from tuneyard.scoring.paired.units import Drawn

DRAWS = 2000
LEAST_ROWS = 30
"""The fewest rows with an interval."""
LEVEL = 0.05
_AT_ONCE = 50
_SEED = 20041


@dataclass(frozen=True)
class Judged:
    """A figure of both models: the difference with its interval and p-value (see `Compared`)."""

    value: float
    against: float
    interval: Interval | None
    p_value: float

    @property
    def difference(self) -> float:
        return self.value - self.against

    @property
    def real(self) -> bool | None:
        """See `Compared.real`."""
        if self.interval is None:
            return None
        return self.p_value <= LEVEL and not self.interval[0] <= 0 <= self.interval[1]


@dataclass(frozen=True)
class Resampled:
    """Sums of each draw (draws x names). `exchanged`, `exchanged_against`: sums after random exchanges."""

    drawn: Drawn
    rows: int
    sums: Numbers
    against: Numbers
    outcomes: Numbers
    exchanged: Numbers
    exchanged_against: Numbers

    @classmethod
    def of(cls, drawn: Drawn, *, draws: int = DRAWS, seed: int = _SEED) -> Resampled:
        """Draw from the units."""
        generator = np.random.default_rng(seed)
        width = len(drawn.names)
        whole = np.concatenate([drawn.sums, drawn.against, drawn.outcomes], axis=1)
        sampled = np.concatenate([counts @ whole for counts in _with_replacement(draws, len(whole), generator)])
        middle, half = (drawn.sums + drawn.against).sum(axis=0) / 2, (drawn.sums - drawn.against) / 2
        shifts = np.concatenate([signs @ half for signs in _signs(draws, len(whole), generator)])
        return cls(
            drawn,
            int(drawn.outcomes.sum()),
            sampled[:, :width],
            sampled[:, width : 2 * width],
            sampled[:, 2 * width :],
            middle + shifts,
            middle - shifts,
        )

    def judge(self, figure: Callable[[Totals], float]) -> Judged:
        """Judge one figure."""
        [value], [against] = self._figures(figure, [self.drawn.sums.sum(axis=0)]), self._figures(figure, [self.drawn.against.sum(axis=0)])
        differences = self._figures(figure, self.sums) - self._figures(figure, self.against)
        exchanged = np.abs(self._figures(figure, self.exchanged) - self._figures(figure, self.exchanged_against))
        least = abs(value - against) * (1 - 1e-9) - 1e-12
        return Judged(
            float(value),
            float(against),
            _percentiles(differences) if self.rows >= LEAST_ROWS else None,
            float((1 + np.count_nonzero(exchanged >= least)) / (1 + len(exchanged))),
        )

    def shares(self) -> list[Interval | None]:
        """Intervals of the shares of wins, ties and losses."""
        if self.rows < LEAST_ROWS:
            return [None, None, None]
        shares = self.outcomes / self.outcomes.sum(axis=1, keepdims=True)
        return [_percentiles(shares[:, column]) for column in range(3)]

    def _figures(self, figure: Callable[[Totals], float], sums: Numbers | Sequence[Numbers]) -> Numbers:
        names = self.drawn.names
        return np.array([figure(dict(zip(names, np.asarray(each).tolist(), strict=True))) for each in sums])


def _with_replacement(draws: int, units: int, generator: np.random.Generator) -> Iterator[Numbers]:
    """How often each unit is in each draw: some draws at a time."""
    for first in range(0, draws, _AT_ONCE):
        some = min(_AT_ONCE, draws - first)
        picked = generator.integers(0, units, (some, units)) + units * np.arange(some)[:, None]
        yield np.bincount(picked.ravel(), minlength=some * units).reshape(some, units).astype(np.float64)


def _signs(draws: int, units: int, generator: np.random.Generator) -> Iterator[Numbers]:
    """1 for a unit that keeps its answers, -1 for one whose answers are exchanged: some draws at a time."""
    for first in range(0, draws, _AT_ONCE):
        yield (2.0 * generator.integers(0, 2, (min(_AT_ONCE, draws - first), units)) - 1.0).astype(np.float64)


def _percentiles(values: Numbers) -> Interval:
    low, high = np.quantile(values, [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)
