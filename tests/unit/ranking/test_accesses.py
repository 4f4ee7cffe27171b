"""Accesses of tables' rows: counted as they come in batches, and cut so that ranges are read equally often."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.ranking import RankerConfig, SparseFeature, TableShape, access_curves, placed, shapes_of, stored_rows
from tuneyard.ranking.tables import accesses
from tuneyard.ranking.tables.accesses import AccessCurve, RowCounts
from tuneyard.ranking.tables.ids import hashed

DRAWN = st.integers(2, 3_000).flatmap(
    lambda height: st.tuples(st.just(height), st.lists(st.integers(0, height - 1), min_size=1, max_size=80))
)


def curve_of(height: int, rows: list[int]) -> AccessCurve:
    counts = RowCounts(height)
    counts.add(np.asarray(rows[:3], dtype=np.int64))
    counts.add(np.asarray(rows[3:], dtype=np.int64))
    curve = counts.curve()
    assert curve is not None
    return curve


def zipf(height: int, ids: int, *, by_frequency: bool) -> np.ndarray:
    draws = np.random.default_rng(1)
    shares = 1 / np.arange(1, height + 1) ** 1.05
    rows = draws.choice(height, ids, p=shares / shares.sum())
    return rows if by_frequency else draws.permutation(height)[rows]


@given(DRAWN, st.integers(1, 8))
def test_a_cut_has_each_row_once_and_is_within_one_row_of_equal(drawn: tuple[int, list[int]], parts: int) -> None:
    height, rows = drawn
    parts = min(parts, height)
    curve = curve_of(height, rows)

    edges = curve.cut(parts)

    assert (edges[0], edges[-1], len(edges)) == (0, height, parts + 1)
    assert sorted(set(edges)) == edges
    heaviest = max(rows.count(row) for row in rows) / len(rows)
    assert all(np.diff([curve.below(edge) for edge in edges]) <= 1 / parts + heaviest + 1e-9)
    assert (curve.below(0), curve.below(height)) == (0.0, 1.0)


@given(DRAWN)
def test_few_accesses_are_counted_exactly_with_and_without_a_whole_array(drawn: tuple[int, list[int]]) -> None:
    height, rows = drawn
    curve = curve_of(height, rows)

    for row in {0, 1, height // 2, height, *rows}:
        assert curve.below(row) == pytest.approx(sum(each < row for each in rows) / len(rows))
    assert curve.unread == pytest.approx(1 - len(set(rows)) / height)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accesses, "_COUNTED_WHOLE", 0)
        assert curve_of(height, rows) == curve


@pytest.mark.parametrize("by_frequency", [True, False])
def test_zipf_ids_are_balanced_by_rows(by_frequency: bool) -> None:
    rows = zipf(100_000, 200_000, by_frequency=by_frequency)
    curve = curve_of(100_000, rows.tolist())
    equal, weighted = (TableShape("t", 100_000, 16, 10.0, 1.0, accesses=each) for each in (None, curve))
    for ranks in (2, 4):
        before, after = (load_over_mean(rows, shape, ranks) for shape in (equal, weighted))
        assert after < 1.03
        assert before > (1.7 if by_frequency else 1.0)


def load_over_mean(rows: np.ndarray, shape: TableShape, ranks: int) -> float:
    """Accesses of the busiest rank, by counting."""
    shards = sorted(placed([shape], ranks, how="row").shards, key=lambda shard: shard.rows)
    edges = [0, *(shard.rows[1] for shard in shards)]
    return float(np.histogram(rows, edges)[0].max() * ranks / len(rows))


def test_where_a_seldom_read_range_has_no_room_ranges_are_equally_high() -> None:
    curve = curve_of(10_000, zipf(10_000, 20_000, by_frequency=True).tolist())
    shape = TableShape("t", 10_000, 16, 10.0, 1.0, accesses=curve)

    placement = placed([shape], 2, how="row", memory_bytes=shape.bytes_of(5_000, 16))

    assert sorted(shard.rows for shard in placement.shards) == [(0, 5_000), (5_000, 10_000)]


def test_a_table_of_one_row_and_one_hot_row_are_cut() -> None:
    assert curve_of(1, [0, 0]).cut(1) == [0, 1]
    assert curve_of(4, [2] * 50).cut(4) == [0, 1, 2, 3, 4]
    assert RowCounts(5).curve() is None


def test_stored_rows_are_counted_as_batches_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))
    columns = {
        "item": [[1, 2], None, [], [7], [-5, 1]],
        "seen": [[1, 2, 3, 4, 5], [6], [], [9, 1000], [1, 2, 3, 4, 5]],
        "user": [3, 3, 4, 1 << 60, 0],
        "empty": pa.array([None] * 5, pa.int64()),
        "clicked": [0, 1, 0, 1, 0],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    sparse = (SparseFeature("item", 10), SparseFeature("seen", 50, length=2), SparseFeature("user", 10), SparseFeature("empty", 3))
    config = RankerConfig((), sparse, (), tasks=("clicked",))
    rows = stored_rows(str(tmp_path / "t.parquet"), config)

    curves = access_curves(rows)

    batch = rows.batch(range(5))
    for name, height in (("item", 10), ("seen", 50), ("user", 10)):
        counted = np.bincount(hashed(batch[f"{name}.ids"], height).numpy(), minlength=height)
        assert [curves[name].below(row) for row in range(height + 1)] == pytest.approx([0, *np.cumsum(counted) / counted.sum()])
    assert "empty" not in curves
    kept = access_curves(rows.select(np.asarray([0, 3])))["item"]
    assert kept.unread == pytest.approx(0.7)
    assert shapes_of(config, accesses=curves)[0].share_of(0, 10) == 1.0
