"""Normalised entropy, AUC and calibration against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.ranking import RankMetrics


def counted(logits: list[float], labels: list[int]) -> RankMetrics:
    metrics = RankMetrics()
    metrics.update(np.array(logits), np.array(labels, dtype=np.float64))
    return metrics


ROWS = st.lists(st.tuples(st.integers(-15, 15), st.integers(0, 1)), min_size=2, max_size=60).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


@given(ROWS)
def test_figures_are_those_of_their_definitions(rows: list[tuple[int, int]]) -> None:
    logits, labels = np.array(rows, dtype=np.float64).T
    found = counted(list(logits), list(labels)).figures()

    probabilities = 1 / (1 + np.exp(-logits))
    losses = -np.where(labels == 1, np.log(probabilities), np.log(1 - probabilities))
    mean = labels.mean()
    positive, negative = logits[labels == 1], logits[labels == 0]
    wins = (positive[:, None] > negative).mean() + (positive[:, None] == negative).mean() / 2
    assert found.normalised_entropy == pytest.approx(losses.mean() / -(mean * np.log(mean) + (1 - mean) * np.log(1 - mean)), rel=1e-6)
    assert found.auc == pytest.approx(wins)
    assert found.calibration == pytest.approx(probabilities.mean() / mean)


@given(ROWS, st.integers(1, 59))
def test_sums_of_parts_are_the_sums_of_the_whole(rows: list[tuple[int, int]], cut: int) -> None:
    logits, labels = [row[0] for row in rows], [row[1] for row in rows]
    parts = counted(logits[:cut], labels[:cut]).merge(counted(logits[cut:], labels[cut:]))

    one, other = parts.figures(), counted(logits, labels).figures()
    assert (one.auc, one.rows, one.positives) == (other.auc, other.rows, other.positives)
    assert one.normalised_entropy == pytest.approx(other.normalised_entropy)


def test_always_predicting_the_mean_has_a_normalised_entropy_of_one() -> None:
    labels = [1, 0, 0, 0]
    found = counted([float(np.log(1 / 3))] * 4, labels).figures()

    assert found.normalised_entropy == pytest.approx(1.0)
    assert found.calibration == pytest.approx(1.0)
    assert found.auc == 0.5


def test_one_label_alone_has_no_entropy_and_no_curve() -> None:
    found = counted([1.0, 2.0], [0, 0]).figures()

    assert np.isnan(found.normalised_entropy)
    assert np.isnan(found.auc)
    with pytest.raises(ValueError, match="no row was counted"):
        RankMetrics().figures()


def test_extreme_logits_stay_finite() -> None:
    found = counted([1e6, -1e6], [1, 0]).figures()

    assert (found.log_loss, found.auc) == (0.0, 1.0)
