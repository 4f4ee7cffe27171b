"""Bags of gradient-boosted trees (LightGBM). The spread of a bag's members measures uncertainty; rows that a member did not see measure
errors.

Deterministic: one thread, seeds derived from the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Objective = Literal["regression", "binary"]
_COMMON = {"num_threads": 1, "deterministic": True, "force_row_wise": True, "verbose": -1, "learning_rate": 0.07, "num_leaves": 31}
_COMMON |= {"feature_fraction": 0.5, "lambda_l2": 1.0, "max_bin": 63}
IN_BAG = 0.8
"""Share of the rows that each member sees."""


@dataclass(frozen=True)
class Bag:
    """Members in LightGBM's text format, which can be stored."""

    texts: tuple[str, ...]

    @cached_property
    def _members(self) -> list[Any]:
        import lightgbm

        return [lightgbm.Booster(model_str=text) for text in self.texts]

    def members(self, features: pd.DataFrame) -> np.ndarray:
        """Each member's addition to the offset; in logits for `binary`. Shape (members, rows); zeros without members."""
        if not self.texts or not len(features):
            return np.zeros((max(1, len(self.texts)), len(features)))
        table = features.to_numpy(float)
        return np.stack([np.asarray(member.predict(table, raw_score=True, num_threads=1)) for member in self._members])


def fit_bag(
    features: pd.DataFrame,
    target: np.ndarray,
    *,
    seed: int,
    objective: Objective = "regression",
    offset: np.ndarray | None = None,
    members: int = 6,
    trees: int = 200,
) -> tuple[Bag, np.ndarray]:
    """Members that predict `target - offset`, and each row's mean prediction by members that did not see it (without the offset).

    Each member has at most `trees` trees, and fewer if there are few rows. Every other member of a regression minimises absolute instead of
    squared error, because runs on a shared cluster have outliers. Fewer than ten rows, or (for `binary`) only one class, are too little to
    learn from: the result is no members, and zeros.
    """
    rows = len(target)
    start = np.zeros(rows) if offset is None else offset
    if rows < 10 or (objective == "binary" and len(np.unique(target)) < 2):
        return Bag(()), np.zeros(rows)
    import lightgbm

    table = features.to_numpy(float)
    rng = np.random.default_rng(seed)
    texts: list[str] = []
    unseen, times = np.zeros(rows), np.zeros(rows)
    leaf, rounds = int(np.clip(rows // 60, 3, 5)), min(trees, 30 + rows // 2)
    for member in range(members):
        inside = np.zeros(rows, dtype=bool)
        inside[rng.permutation(rows)[: max(2, round(IN_BAG * rows))]] = True
        settings = _COMMON | {
            "objective": "regression_l1" if objective == "regression" and member % 2 == 0 else objective,
            "seed": int(rng.integers(2**31)),
            "min_data_in_leaf": leaf,
            "boost_from_average": False,
        }
        data = lightgbm.Dataset(table[inside], target[inside], init_score=start[inside], free_raw_data=True)
        booster = lightgbm.train(settings, data, num_boost_round=rounds)
        texts.append(booster.model_to_string())
        outside = ~inside
        if outside.any():
            unseen[outside] += np.asarray(booster.predict(table[outside], raw_score=True, num_threads=1))
            times[outside] += 1
    bag = Bag(tuple(texts))
    never = times == 0
    if never.any():
        unseen[never] = bag.members(features[never]).mean(0)
    return bag, unseen / np.maximum(times, 1)
