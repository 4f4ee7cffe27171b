"""Figures of slices and windows: those of their rows alone, however sums were batched, merged and stored."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.ranking import Coded, JudgedRows, RankFigures, RankMetrics, SlicedMetrics, WindowedMetrics, coded

VALUES = ["a", "b", "c", None]
Rows = list[tuple[float, float, int, int]]
"""Logit, label, number of the value, place."""
LOGITS = st.one_of(st.floats(-30, 30), st.sampled_from([0.0, -0.0, float("nan"), float("inf"), -1e300]))
LABELS = st.sampled_from([0.0, 1.0, 0.0, 1.0, 0.0, 1.0, float("nan"), 0.5, 2.0])
ROWS = st.lists(st.tuples(LOGITS, LABELS, st.integers(0, 3), st.integers(-40, 400)), max_size=60)


def sliced(rows: Rows, values: dict[str, list[str | None]] | None = None) -> SlicedMetrics:
    metrics = SlicedMetrics(["device"], values=values)
    logits, labels, numbers, _ = columns(rows)
    metrics.update(logits, labels, {"device": Coded(numbers.astype(np.int64), VALUES)})
    return metrics


def windowed(rows: Rows, width: float = 10, most: int = 8) -> WindowedMetrics:
    metrics = WindowedMetrics(width, most)
    logits, labels, _, places = columns(rows)
    metrics.update(logits, labels, places)
    return metrics


def columns(rows: Rows) -> np.ndarray:
    return np.array(rows, dtype=np.float64).reshape(-1, 4).T


def plain(rows: Rows) -> RankMetrics:
    metrics = RankMetrics()
    logits, labels, _, _ = columns(rows)
    metrics.update(logits, labels)
    return metrics


def counts(rows: Rows) -> bool:
    return any(np.isfinite(row[0]) and row[1] in (0, 1) for row in rows)


def alike(found: RankFigures, expected: RankFigures) -> bool:
    same = found.rows == expected.rows and found.positives == expected.positives
    close = [
        np.isclose(getattr(found, name), getattr(expected, name), rtol=1e-9, equal_nan=True)
        for name in ("log_loss", "normalised_entropy", "calibration")
    ]
    error = 1e-12 + found.auc_error + expected.auc_error
    return same and all(close) and ((np.isnan(found.auc) and np.isnan(expected.auc)) or abs(found.auc - expected.auc) <= error)


def reference_auc(logits: np.ndarray, labels: np.ndarray) -> float:
    """Pair by pair, as scikit-learn's roc_auc_score counts."""
    positive, negative = logits[labels == 1][:, None], logits[labels == 0]
    return float((positive > negative).mean() + (positive == negative).mean() / 2)


@given(ROWS, st.sampled_from([1, 16, 1 << 11, 1 << 16]))
def test_the_area_is_no_further_from_the_exact_one_than_its_error_says(rows: Rows, bins: int) -> None:
    logits, labels, _, _ = columns([row for row in rows if np.isfinite(row[0]) and row[1] in (0, 1)])
    if len(set(labels)) < 2:
        return
    metrics = RankMetrics(bins)
    metrics.update(logits, labels)
    found = metrics.figures()
    assert abs(found.auc - reference_auc(logits, labels)) <= found.auc_error + 1e-12


@given(ROWS)
def test_rows_without_a_label_or_a_logit_are_left_out_and_counted(rows: Rows) -> None:
    good = [row for row in rows if np.isfinite(row[0]) and row[1] in (0, 1)]
    metrics = plain(rows)
    assert (metrics.rows, metrics.left_out) == (len(good), len(rows) - len(good))
    if good:
        assert alike(metrics.figures(), plain(good).figures())


@given(ROWS)
def test_a_slice_has_the_figures_of_its_rows(rows: Rows) -> None:
    if not counts(rows):
        return
    found = sliced(rows).figures()
    assert alike(found.whole, plain(rows).figures())
    for number, name in enumerate(["a", "b", "c", "(missing)"]):
        own = [row for row in rows if row[2] == number]
        assert (name in found.slices["device"]) == counts(own)
        if counts(own):
            assert alike(found.slices["device"][name], plain(own).figures())
    sizes = [figures.rows for figures in found.slices["device"].values()]
    assert sizes == sorted(sizes, reverse=True)


@given(ROWS, ROWS, ROWS, st.booleans())
def test_slices_may_be_merged_in_any_order(one: Rows, two: Rows, three: Rows, named: bool) -> None:
    values: dict[str, list[str | None]] | None = {"device": ["b", None]} if named else None
    a, b, c = (sliced(rows, values) for rows in (one, two, three))
    whole = sliced([*one, *two, *three], values)
    for merged in (a.merge(b).merge(c), a.merge(b.merge(c)), c.merge(a).merge(b)):
        if counts([*one, *two, *three]):
            found, expected = merged.figures(), whole.figures()
            assert found.slices["device"].keys() == expected.slices["device"].keys()
            assert all(alike(figures, expected.slices["device"][name]) for name, figures in found.slices["device"].items())
            assert alike(found.whole, expected.whole)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=300), st.integers(1, 3))
def test_a_column_with_many_values_keeps_exact_slices_in_bounded_memory(numbers: list[int], most: int) -> None:
    values = [f"v{number}" for number in range(31)]
    cut = len(numbers) // 2
    parts = []
    for some in (numbers[:cut], numbers[cut:]):
        metrics = SlicedMetrics(["item"], most_values=most)
        for number in some:
            metrics.update(np.zeros(1), np.ones(1), {"item": Coded(np.array([number]), values)})
        parts.append(metrics)
    merged = parts[0].merge(parts[1])
    assert len(merged._columns["item"].slices) <= 8 * most
    found = merged.figures().slices["item"]
    assert sum(figures.rows for figures in found.values()) == len(numbers)
    assert len([name for name in found if name != "(other)"]) <= most
    assert all(figures.rows == numbers.count(values.index(name)) for name, figures in found.items() if name != "(other)")


@given(ROWS, st.sampled_from([1, 10, 7.5]))
def test_a_window_has_the_figures_of_its_rows(rows: Rows, width: float) -> None:
    metrics = windowed(rows, width, most=500)
    found = metrics.figures()
    assert sum(window.figures.rows for window in found) == plain(rows).rows
    assert all(before.stop <= after.start for before, after in pairwise(found))
    for window in found:
        assert alike(window.figures, plain([row for row in rows if window.start <= row[3] < window.stop]).figures())


@given(ROWS, ROWS, ROWS)
def test_windows_may_be_merged_in_any_order_and_stay_few(one: Rows, two: Rows, three: Rows) -> None:
    a, b, c = (windowed(rows) for rows in (one, two, three))
    whole = windowed([*one, *two, *three])
    assert len(whole.figures()) <= 8
    for merged in (a.merge(b).merge(c), a.merge(b.merge(c)), c.merge(a).merge(b)):
        assert merged.width == whole.width
        for found, expected in zip(merged.figures(), whole.figures(), strict=True):
            assert (found.start, found.stop) == (expected.start, expected.stop)
            assert alike(found.figures, expected.figures)


def test_rows_without_a_time_are_in_no_window() -> None:
    metrics = WindowedMetrics(60.0)
    metrics.update(np.zeros(6), np.array([0, 1, 1, 0, 1, 0]), np.array([0.0, np.nan, 61.0, 1e300, -1e25, np.inf]))
    assert metrics.unplaced == 4
    assert [(window.start, window.figures.rows) for window in metrics.figures()] == [(0.0, 1), (60.0, 1)]


def test_a_batch_with_a_place_of_its_own_for_each_row_takes_no_memory_for_each() -> None:
    metrics = WindowedMetrics(1, most=4)
    metrics.update(np.zeros(10_000), np.ones(10_000), np.arange(10_000) * 1000)
    assert len(metrics.figures()) <= 4
    assert sum(window.figures.rows for window in metrics.figures()) == 10_000


@given(ROWS)
def test_sums_come_back_from_json(rows: Rows) -> None:
    metrics, windows = sliced(rows), windowed(rows)
    again = SlicedMetrics.from_dict(json.loads(json.dumps(metrics.to_dict())))
    assert again.to_dict() == metrics.to_dict()
    assert WindowedMetrics.from_dict(json.loads(json.dumps(windows.to_dict()))).to_dict() == windows.to_dict()
    assert RankMetrics.from_dict(again.whole.to_dict()).rows == metrics.whole.rows


def test_what_was_merged_does_not_change_with_its_parts() -> None:
    rows: Rows = [(0.5, 1.0, 0, 0)]
    a, b = sliced(rows), sliced([])
    merged = a.merge(b)
    a.update(np.zeros(1), np.ones(1), {"device": Coded(np.zeros(1, dtype=np.int64), VALUES)})
    assert merged.figures().slices["device"]["a"].rows == 1


def test_entropy_above_a_base_is_a_difference() -> None:
    generator = np.random.default_rng(1)
    logits = generator.normal(size=4_000)
    labels = (generator.random(4_000) < 1 / (1 + np.exp(-logits))).astype(float)
    good, poor = RankMetrics(), RankMetrics()
    good.update(logits, labels)
    poor.update(0.1 * logits, labels)
    figures, mean = good.figures(), float(labels.mean())
    assert figures.entropy_above(poor.figures()) == figures.normalised_entropy - poor.figures().normalised_entropy < 0
    assert figures.entropy_above(mean) == pytest.approx(figures.normalised_entropy - 1)
    assert figures.entropy_above(0.9) < figures.entropy_above(mean)  # a worse base
    with pytest.raises(ValueError, match="between 0 and 1"):
        figures.entropy_above(1.0)


def test_log_loss_is_exact_for_large_logits() -> None:
    metrics = RankMetrics()
    metrics.update(np.array([40.0, -40.0, 800.0]), np.array([0.0, 1.0, 0.0]))
    assert metrics.loss == pytest.approx(880.0)


def test_sums_of_other_columns_or_widths_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="do not add up"):
        SlicedMetrics(["a"]).merge(SlicedMetrics(["b"]))
    with pytest.raises(ValueError, match="do not add up"):
        WindowedMetrics(1).merge(WindowedMetrics(2))
    with pytest.raises(ValueError, match="power of two"):
        RankMetrics(1000)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["x", None, "y", "x"]),
        pa.array(["x", None, "y", "x"]).dictionary_encode(),
        pa.chunked_array([["x", None], ["y", "x"]]),
        pa.array(["q", "x", None, "y", "x"]).slice(1),
    ],
)
def test_columns_of_arrow_are_coded(column: pa.Array) -> None:
    found = coded(column)
    assert [found.values[code] for code in found.codes] == ["x", None, "y", "x"]


def test_losses_of_rows_are_shared_by_slices_and_windows() -> None:
    judged = JudgedRows.of(np.array([0.0, np.nan, 1.0]), np.array([1, 1, 0]))
    assert judged.left_out == 1
    assert judged.of_counted(np.array([7, 8, 9])).tolist() == [7, 9]
