"""Regression from runs with similar settings: a Gaussian process (Rasmussen and Williams 2006, algorithm 2.1).

Settings lie on a grid of powers of two, so the distance of two runs is in octaves of their layout. Similarity is exp(-distance) (Matern
1/2: neighbouring settings may differ sharply). The process learns from a handful of rows, which are too few for trees, and its spread shows
where it has none.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from tuneyard.tuning.features import Described

OCTAVES = dict.fromkeys(("log_dp", "log_tp", "log_pp", "log_cp", "log_gpus", "log_micro_batch"), 5.0) | {
    "zero": 3.0,
    "recompute": 2.0,
    "offload": 1.0,
    "adapter": 1.0,
    "quantised": 1.5,
    "compute_bytes": 1.5,
}
"""Differences of features that count as one unit of distance."""
SHAPE_OCTAVES = 3.0
"""Octaves of hidden size, or of the number of layers, that count as one unit."""
STRANGERS = 1.5
"""Distance between runs of different software, and between runs on different SKUs."""

PADDING = 1.5
"""Distance between runs with filled sequences and with padded ones."""


def places(rows: Described) -> np.ndarray:
    """Rows as points whose Euclidean distances measure dissimilarity. Shape (rows, dimensions)."""
    features, known = rows.features, rows.known
    columns = [features[name].to_numpy() / unit for name, unit in OCTAVES.items()]
    columns += [np.log2(known[name].to_numpy(float)) / SHAPE_OCTAVES for name in ("hidden", "layers")]
    columns.append(np.log2(known["seq_len"].to_numpy(float)) / 5.0)
    columns.append(known["packed"].to_numpy(float) * PADDING)
    columns += [(known[name].to_numpy(float) > limit) / 4.0 for name, limit in (("dp", 1), ("pp", 1), ("tp", 8))]
    for name in ("framework", "sku"):
        # Words become pseudo-random directions in a few dimensions: equal words coincide, others are about STRANGERS apart.
        columns += list(np.stack([_direction(str(word)) for word in known[name]], axis=1) if len(known) else np.zeros((8, 0)))
    return np.asarray(np.nan_to_num(np.stack(columns, axis=1)))


@functools.cache
def _direction(word: str) -> np.ndarray:
    """A point of the word on a sphere of eight dimensions, so that two words are about STRANGERS apart."""
    rng = np.random.default_rng(list(word.encode()) or [0])
    axis = rng.standard_normal(8)
    return np.asarray(axis / np.linalg.norm(axis) * STRANGERS / np.sqrt(2))


@dataclass(frozen=True)
class Kernel:
    """Known rows, and the deviation of each from its expectation."""

    points: np.ndarray
    """Shape (rows, dimensions)."""
    values: np.ndarray
    """Shape (rows,)."""
    variance: float
    """Prior variance of values around their expectation."""
    noise: float
    """Variance of a repeated run."""
    shared: float = 0.0
    """Variance that all rows share."""

    @classmethod
    def empty(cls, dimensions: int, *, variance: float, noise: float, shared: float = 0.0) -> Self:
        return cls(np.zeros((0, dimensions)), np.zeros(0), variance, noise, shared)

    def longer(self, points: np.ndarray, values: np.ndarray) -> Kernel:
        """A kernel with further known rows."""
        return replace(self, points=np.vstack([self.points, points]), values=np.concatenate([self.values, values]))

    @cached_property
    def _solved(self) -> tuple[np.ndarray, np.ndarray]:
        from scipy.linalg import cho_factor, cho_solve

        among = self._likeness(self.points) + self.noise * np.eye(len(self.points))
        factor = cho_factor(among, lower=True)
        return factor[0], np.asarray(cho_solve(factor, self.values))

    def _likeness(self, others: np.ndarray) -> np.ndarray:
        return np.asarray(self.variance * np.exp(-distances(others, self.points)) + self.shared)

    def mean(self, points: np.ndarray) -> np.ndarray:
        """Expected value at the points. Shape (points,)."""
        if not len(self.values):
            return np.zeros(len(points))
        return np.asarray(self._likeness(points) @ self._solved[1])

    def spread(self, points: np.ndarray) -> np.ndarray:
        """Standard deviation of the expectation, without the noise of a run. Shape (points,)."""
        before = self.variance + self.shared
        if not len(self.values):
            return np.full(len(points), np.sqrt(before))
        from scipy.linalg import solve_triangular

        told = solve_triangular(np.tril(self._solved[0]), self._likeness(points).T, lower=True)
        return np.asarray(np.sqrt(np.maximum(before - (told**2).sum(0), 1e-12)))


def distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Euclidean distances. Shapes (n, d), (m, d) -> (n, m)."""
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1)[None] - 2 * one @ other.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))
