"""A policy over a factored categorical space, improved by REINFORCE (Williams 1992), as in CubicML's search (Meta 2024, section 3.3).

Each setting has one softmax. A point's probability is the product over its settings, renormalised over the legal, untried points. So only
legal points are drawn, and the gradient of log p is exact: the point's one-hot vector minus the policy's expectation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    steps: int = 30
    batch: int = 32
    rate: float = 0.7
    entropy: float = 0.02
    """Weight of the policy's entropy beside the reward (0 to 1): prevents early convergence to the first good point."""
    baseline_decay: float = 0.9
    """Decay of the moving average of rewards that is subtracted from each reward."""


def reinforce(
    keys: np.ndarray,
    sizes: tuple[int, ...],
    reward: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
    settings: PolicySettings | None = None,
) -> dict[int, float]:
    """Improve the policy by `reward`. Returns the drawn points, with the reward of each.

    `keys`: points as indices of values, shape (points, settings); `sizes`: number of values of each setting; `reward`: takes positions in
    `keys`. Only positions in `keys` are drawn.
    """
    chosen = settings or PolicySettings()
    # Points as one-hot rows: a point's logit is its row times all logits.
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int)
    hot = np.zeros((len(keys), int(sum(sizes))))
    for column, offset in enumerate(offsets):
        hot[np.arange(len(keys)), offset + keys[:, column]] = 1.0
    logits = rng.normal(0, 0.1, hot.shape[1])
    baseline: float | None = None
    seen: dict[int, float] = {}
    for _ in range(chosen.steps):
        probability = _softmax(hot @ logits)
        drawn = rng.choice(len(keys), size=chosen.batch, p=probability)
        rewards = reward(drawn)
        seen.update(zip(drawn.tolist(), rewards.tolist(), strict=True))
        baseline = float(rewards.mean()) if baseline is None else baseline
        expected = probability @ hot
        advantage = rewards - baseline
        spread = max(float(advantage.std()), 1e-3)
        gradient = ((advantage / spread)[:, None] * (hot[drawn] - expected)).mean(0)
        surprise = -np.log(np.maximum(probability, 1e-12))
        # d entropy / d logits = sum over points of p (-log p - H) (hot - expected).
        entropy = probability @ surprise
        gradient += chosen.entropy / spread * ((probability * (surprise - entropy))[:, None] * hot).sum(0)
        logits += chosen.rate * gradient
        baseline = chosen.baseline_decay * baseline + (1 - chosen.baseline_decay) * float(rewards.mean())
    return seen


def _softmax(values: np.ndarray) -> np.ndarray:
    raised = np.exp(values - values.max())
    return np.asarray(raised / raised.sum())
