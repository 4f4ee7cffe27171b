"""Quality of predicted probabilities: normalised entropy, area under the ROC curve, calibration.

Normalised entropy (He et al. 2014) is the mean log loss over that of always predicting the mean label: 1 is no better than the mean. Sums
are added up over batches, ranks and windows. The ROC curve is computed from a histogram of the logits. `sliced_metrics` keeps the sums by
values of columns, `windowed_metrics` by rows or time.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
_BINS = 1 << 16
_REACH = 20.0
"""Larger logits are in the outermost bins."""


@dataclass(frozen=True)
class RankFigures:
    """`normalised_entropy` and `auc` are NaN if only one label occurs. `calibration`: mean prediction over mean label."""

    rows: int
    positives: int
    log_loss: float
    normalised_entropy: float
    auc: float
    calibration: float
    auc_error: float = 0.0
    """Bound on the error of `auc`: half of the share of pairs of a positive and a negative in the same bin."""
    left_out: int = 0
    """Rows without a label of 0 or 1, or without a finite logit."""

    def entropy_above(self, base: RankFigures | float) -> float:
        """Normalised entropy minus that of a base: other figures of the same rows, or a constant prediction of a rate of positive labels.

        Negative is better than the base. NaN if only one label occurs. Raises ValueError for a rate outside of 0 to 1.
        """
        if isinstance(base, RankFigures):
            return self.normalised_entropy - base.normalised_entropy
        if not 0 < base < 1:
            raise ValueError(f"a rate of positive labels lies between 0 and 1, and {base} does not")
        mean = self.positives / self.rows
        return self.normalised_entropy - _cross_entropy(mean, base) / _cross_entropy(mean, mean)


@dataclass(frozen=True)
class JudgedRows:
    """Rows with their loss, shared by all slices and windows.

    For each row that counts: `labels` (0 or 1), `losses`, `predicted` (probability), `bins` (of 2^16). `counted`: for all rows, whether
    they count; None: all do.
    """

    labels: Counts
    losses: Numbers
    predicted: Numbers
    bins: Counts
    counted: npt.NDArray[np.bool_] | None
    left_out: int = 0

    @classmethod
    def of(cls, logits: npt.NDArray[Any], labels: npt.NDArray[Any]) -> JudgedRows:
        """`logits` and `labels`, one per row. A row with a label other than 0 or 1, or a logit that is not finite, is left out."""
        logits, labels = np.asarray(logits, dtype=np.float64), np.asarray(labels, dtype=np.float64)
        counted = np.isfinite(logits) & ((labels == 0) | (labels == 1))
        left_out = len(counted) - int(np.count_nonzero(counted))
        if left_out:
            logits, labels = logits[counted], labels[counted]
        # log(1 + e^-|x|) is common to the loss of both labels
        smaller = np.exp(-np.abs(logits))
        losses = np.maximum(logits, 0.0) - labels * logits + np.log1p(smaller)
        predicted = np.where(logits >= 0, 1.0, smaller) / (1.0 + smaller)
        bins = np.clip((logits + _REACH) * (_BINS / (2 * _REACH)), 0, _BINS - 1).astype(np.int64)
        return cls(labels.astype(np.int64), losses, predicted, bins, counted if left_out else None, left_out)

    def select(self, rows: npt.NDArray[Any] | slice) -> JudgedRows:
        """Some of the rows that count."""
        return JudgedRows(self.labels[rows], self.losses[rows], self.predicted[rows], self.bins[rows], None)

    def groups(self, numbers: Counts) -> Iterator[tuple[int, JudgedRows]]:
        """The rows of each distinct number. `numbers`: one per row that counts."""
        if len(numbers) and int(numbers.max()) < 1 << 15 and int(numbers.min()) >= 0:
            numbers = numbers.astype(np.int16)  # numpy sorts this dtype by radix
        rows = self
        if np.any(numbers[1:] < numbers[:-1]):
            order = np.argsort(numbers, kind="stable")
            rows, numbers = self.select(order), numbers[order]
        borders = [0, *(np.flatnonzero(np.diff(numbers)) + 1), len(numbers)]
        for start, stop in pairwise(borders):
            if stop > start:
                yield int(numbers[start]), rows.select(slice(start, stop))

    def of_counted(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values of all rows -> values of the rows that count."""
        return values if self.counted is None else values[self.counted]


class RankMetrics:
    """Sums over rows. `bins`: a power of two up to 2^16; each takes 16 bytes, and fewer make `auc` coarser (see `auc_error`)."""

    def __init__(self, bins: int = _BINS) -> None:
        if bins < 1 or _BINS % bins:
            raise ValueError(f"{bins} bins are no power of two up to {_BINS}")
        self.rows = 0
        self.positives = 0
        self.left_out = 0
        self.loss = 0.0
        self.predicted = 0.0
        self.counts: Counts = np.zeros((2, bins), dtype=np.int64)
        """Rows of each label in each bin."""

    @property
    def bins(self) -> int:
        return int(self.counts.shape[1])

    def update(self, logits: npt.NDArray[Any], labels: npt.NDArray[Any]) -> None:
        """Count rows: `logits` and `labels` (0 or 1), one per row."""
        self.add(JudgedRows.of(logits, labels))

    def add(self, judged: JudgedRows) -> None:
        """Count rows."""
        self.rows += len(judged.labels)
        self.positives += int(judged.labels.sum())
        self.left_out += judged.left_out
        self.loss += float(judged.losses.sum())
        self.predicted += float(judged.predicted.sum())
        places = judged.bins // (_BINS // self.bins) + judged.labels * self.bins
        self.counts += np.bincount(places, minlength=2 * self.bins).reshape(2, -1)

    def merge(self, other: RankMetrics) -> RankMetrics:
        """The sums of both, with the smaller number of bins."""
        made = RankMetrics(min(self.bins, other.bins))
        for each in (self, other):
            made.rows += each.rows
            made.positives += each.positives
            made.left_out += each.left_out
            made.loss += each.loss
            made.predicted += each.predicted
            made.counts += each.counts.reshape(2, made.bins, -1).sum(2)
        return made

    def figures(self) -> RankFigures:
        """The figures. Raises ValueError if no row was counted."""
        if not self.rows:
            raise ValueError("no row was counted")
        mean, log_loss = self.positives / self.rows, self.loss / self.rows
        both = 0 < self.positives < self.rows
        auc, error = self._auc() if both else (np.nan, np.nan)
        return RankFigures(
            rows=self.rows,
            positives=self.positives,
            log_loss=log_loss,
            normalised_entropy=log_loss / _cross_entropy(mean, mean) if both else float("nan"),
            auc=float(auc),
            calibration=self.predicted / self.positives if self.positives else float("inf"),
            auc_error=float(error),
            left_out=self.left_out,
        )

    def _auc(self) -> tuple[float, float]:
        """The share of pairs of a positive and a negative in which the positive is higher; ties count half (Mann-Whitney). Pairs in the
        same bin count as ties: half of their share is the largest error.
        """
        negative, positive = self.counts.astype(np.float64)
        below = np.cumsum(negative) - negative
        pairs = float(self.positives) * (self.rows - self.positives)
        tied = float(positive @ negative) / 2
        return (float(positive @ below) + tied) / pairs, tied / pairs

    def to_dict(self) -> dict[str, Any]:
        """The sums for JSON, with only the bins that are not empty."""
        at = np.flatnonzero(self.counts)
        packed = np.stack([np.diff(at, prepend=0), self.counts.ravel()[at]]).astype("<i8").tobytes()
        return {
            "rows": self.rows,
            "positives": self.positives,
            "left_out": self.left_out,
            "loss": self.loss,
            "predicted": self.predicted,
            "bins": self.bins,
            "counts": b64encode(zlib.compress(packed, 1)).decode(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RankMetrics:
        """The sums from `to_dict`. Raises KeyError for other values."""
        made = cls(values["bins"])
        for name in ("rows", "positives", "left_out", "loss", "predicted"):
            setattr(made, name, values[name])
        steps, counts = np.frombuffer(zlib.decompress(b64decode(values["counts"])), dtype="<i8").reshape(2, -1)
        made.counts.reshape(-1)[np.cumsum(steps)] = counts
        return made


def _cross_entropy(mean: float, rate: float) -> float:
    """Mean log loss of always predicting `rate` when the mean label is `mean`, between 0 and 1."""
    if not 0 < mean < 1:
        return float("nan")
    return float(-(mean * np.log(rate) + (1 - mean) * np.log1p(-rate)))
