"""The residual of the analytic estimates, learned by trees and from similar runs, with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from tuneyard.tuning.boosting import Bag, fit_bag
from tuneyard.tuning.features import Described
from tuneyard.tuning.kernel import Kernel

KERNEL_ROWS = 2000
"""Maximum of rows in a kernel: its cost grows with their cube."""
TREE_ROWS = 100.0
"""Rows of history at which trees and similar runs have equal weight; with more, trees have more."""


@dataclass(frozen=True)
class Residual:
    """The residual of the analytic estimate: from similar runs while there are few rows, from trees when there are many."""

    trees: Bag
    like: Kernel
    noise: Bag
    """Trees for log |error| on unseen rows."""
    usual_noise: float

    @classmethod
    def fit(cls, rows: Described, points: np.ndarray, left: np.ndarray, *, seed: int, noise: float) -> Self:
        trees, unseen = fit_bag(rows.features, left, seed=seed)
        like = Kernel(*_thinned(points, left, seed), variance=0.8, noise=0.12)
        error = np.abs(left - unseen) if trees.texts else np.zeros(0)
        usual = float(np.log(np.maximum(np.median(error), 0.02))) if len(error) else np.log(noise)
        spread = fit_bag(rows.features, np.log(error + 0.02) - usual, seed=seed + 1, members=1, trees=60)[0] if len(error) else Bag(())
        return cls(trees, like, spread, usual)

    def mean(self, rows: Described, points: np.ndarray, alike: np.ndarray | None = None) -> np.ndarray:
        """Expected residual. `alike`: whether similar runs count for each row; None: for all. Shape (rows,)."""
        trees = self.trees.members(rows.features).mean(0)
        weight = self._kernel_weight
        both = (1 - weight) * trees + weight * self.like.mean(points)
        return np.asarray(both if alike is None else np.where(alike, both, trees))

    @property
    def _kernel_weight(self) -> float:
        return TREE_ROWS / (TREE_ROWS + len(self.like.values)) if self.trees.texts else 1.0

    def sigma(self, rows: Described, points: np.ndarray) -> np.ndarray:
        """Standard deviation in log units, from the members' disagreement, the distance from history, and the noise of runs."""
        disagreement = self.trees.members(rows.features).std(0)
        # The median absolute deviation of a normal distribution is 0.674 standard deviations.
        noise = np.exp(self.usual_noise + self.noise.members(rows.features)[0]) / 0.674
        return np.asarray(np.sqrt(disagreement**2 + (self.like.spread(points) / 2) ** 2 + noise**2))


def _thinned(points: np.ndarray, values: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    if len(values) <= KERNEL_ROWS:
        return points, values
    kept = np.random.default_rng(seed).permutation(len(values))[:KERNEL_ROWS]
    return points[kept], values[kept]
