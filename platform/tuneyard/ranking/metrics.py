"""How good predicted probabilities are: normalised entropy, area under the ROC curve, calibration.

Normalised entropy (He et al. 2014) is the mean log loss over that of always predicting the mean label: 1 is no better than the mean.
Sums are added up over batches, ranks and windows; the curve is that of 2^16 bins of the logit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
_BINS = 1 << 16
_REACH = 20.0
"""Logits beyond are in the outermost bins."""


@dataclass(frozen=True)
class RankFigures:
    """`normalised_entropy` and `auc` are NaN where only one label occurs. `calibration`: mean prediction over mean label."""

    rows: int
    positives: int
    log_loss: float
    normalised_entropy: float
    auc: float
    calibration: float


@dataclass
class RankMetrics:
    """Sums of one slice of the rows."""

    rows: int = 0
    positives: int = 0
    loss: float = 0.0
    predicted: float = 0.0
    negative_bins: Numbers = field(default_factory=lambda: np.zeros(_BINS))
    positive_bins: Numbers = field(default_factory=lambda: np.zeros(_BINS))

    def update(self, logits: Numbers, labels: Numbers) -> None:
        """Count rows: `logits` and `labels` (0 or 1), one for each."""
        self.rows += len(labels)
        self.positives += int(labels.sum())
        self.loss += float(np.sum(np.logaddexp(0.0, logits) - labels * logits))
        self.predicted += float(np.sum(1 / (1 + np.exp(-np.clip(logits, -700, 700)))))
        bins = np.clip((logits + _REACH) * (_BINS / (2 * _REACH)), 0, _BINS - 1).astype(np.int64)
        self.positive_bins += np.bincount(bins, weights=labels, minlength=_BINS)
        self.negative_bins += np.bincount(bins, weights=1 - labels, minlength=_BINS)

    def merge(self, other: RankMetrics) -> RankMetrics:
        """The sums of both."""
        return RankMetrics(
            self.rows + other.rows,
            self.positives + other.positives,
            self.loss + other.loss,
            self.predicted + other.predicted,
            self.negative_bins + other.negative_bins,
            self.positive_bins + other.positive_bins,
        )

    def figures(self) -> RankFigures:
        """Raises ValueError where no row was counted."""
        if not self.rows:
            raise ValueError("no row was counted")
        mean, log_loss = self.positives / self.rows, self.loss / self.rows
        both = 0 < self.positives < self.rows
        entropy = -(mean * np.log(mean) + (1 - mean) * np.log1p(-mean)) if both else np.nan
        return RankFigures(
            self.rows,
            self.positives,
            log_loss,
            float(log_loss / entropy),
            self._auc() if both else float("nan"),
            self.predicted / self.positives if self.positives else float("inf"),
        )

    def _auc(self) -> float:
        """The share of pairs of a positive and a negative in which the positive is higher; ties count half (Mann-Whitney)."""
        below = np.cumsum(self.negative_bins) - self.negative_bins
        pairs = np.sum(self.positive_bins * (below + self.negative_bins / 2))
        return float(pairs / (self.positives * (self.rows - self.positives)))
