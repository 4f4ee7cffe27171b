"""Samples of rows: of the asked size, the same every time, and read by number from files of any type."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tuneyard.api import BadInput, ScoreData
from tuneyard.data import ScoreRows
from tuneyard.data.row_sample import sampled_rows

ROWS = 5000


@given(rows=st.integers(1, 3000), count=st.integers(1, 4000), seed=st.integers(0, 2**32 - 1))
def test_a_count_is_exact_and_the_same_every_time(rows: int, count: int, seed: int) -> None:
    taken = sampled_rows(rows, count, seed)

    assert len(taken) == min(rows, count)
    assert (np.diff(taken) > 0).all()
    assert taken.tolist() == sampled_rows(rows, count, seed).tolist()


@given(small=st.floats(0.01, 0.5), seed=st.integers(0, 100))
def test_a_larger_share_holds_a_smaller_one(small: float, seed: int) -> None:
    assert set(sampled_rows(2000, small, seed)) <= set(sampled_rows(2000, 1.5 * small, seed))


def test_shares_are_close_and_seeds_draw_other_rows() -> None:
    assert len(sampled_rows(1_000_000, 0.1, 0)) == pytest.approx(100_000, rel=0.02)
    one, other = (set(sampled_rows(100_000, 0.1, seed)) for seed in (1, 2))
    assert len(one & other) == pytest.approx(1000, rel=0.2)


def test_a_sample_larger_than_one_block_of_keys_is_that_of_all_keys() -> None:
    rows = 2_500_000
    taken = sampled_rows(rows, 1000, 7)

    assert len(taken) == 1000
    assert np.histogram(taken, bins=5, range=(0, rows))[0] == pytest.approx([200] * 5, rel=0.35)


def write(folder: Path, kind: str) -> str:
    values = [{"prompt": f"p{i}", "answer": i, "nested": [{"a": i}]} for i in range(ROWS)]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(values), folder / "a.parquet", row_group_size=700)
    else:
        for name, some in (("a", values[:3000]), ("b", values[3000:])):
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n\n" for row in some))
    return str(folder)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize("sample", [0.02, 700, 3.0])
def test_rows_of_a_sample_keep_their_numbers_and_values(tmp_path: Path, kind: str, sample: float) -> None:
    rows = ScoreRows.open(ScoreData(source=write(tmp_path, kind), reference="answer", sample=sample, sample_seed=5))

    found = [row for start in range(0, rows.count(), 50) for row in rows.read(start, start + 50)]

    assert [row["index"] for row in found] == sampled_rows(ROWS, sample, 5).tolist()
    assert all(row["prompt"] == f"p{row['index']}" and row["kept"]["nested"] == [{"a": row["index"]}] for row in found)
    assert rows.row(found[-1]["index"]) == found[-1]


def test_a_sample_is_taken_of_the_first_rows_of_a_limit(tmp_path: Path) -> None:
    rows = ScoreRows.open(ScoreData(source=write(tmp_path, "jsonl"), limit=100, sample=0.5))

    assert 30 < rows.count() < 70
    assert max(row["index"] for row in rows.read(0, 100)) < 100


def test_a_sample_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"data.sample 0.0001 of 10 rows takes none"):
        ScoreRows.open(ScoreData(source=write(tmp_path, "jsonl"), limit=10, sample=0.0001))


@pytest.mark.parametrize("sample", [0, -1, 1.5, float("nan"), float("inf")])
def test_samples_that_are_neither_share_nor_count_are_refused(sample: float) -> None:
    with pytest.raises(ValidationError):
        ScoreData(source="d", sample=sample)
