"""Rows of a table on disk: the same batches as from Arrow, any rows at once, and what is wrong with a table named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.builders.rankers import rank_task, write_clicks

from tuneyard.api import BadInput
from tuneyard.ranking import FlatRows, RankerConfig, SparseFeature, batch_of, check_table, config_of_task, stored_rows

CONFIG = RankerConfig(
    dense=("age",), sparse=(SparseFeature("item", 100), SparseFeature("seen", 50, length=3)), layers=(), tasks=("clicked",)
)
COLUMNS: dict[str, Any] = {
    "age": [1.0, None, float("nan"), 4.0, 1.0],
    "item": [[1, 2], None, [], [7], [1, 2]],
    "seen": [[1, 2, 3, 4, 5], [6], [], [-9, 1000], [1, 2, 3, 4, 5]],
    "clicked": [0, 1, 0, 1, 0],
    "country": ["de", None, "fr", "de", "de"],
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))


def stored(tmp_path: Path, config: RankerConfig = CONFIG, slices: tuple[str, ...] = (), **changes: Any) -> FlatRows:
    pq.write_table(pa.table(COLUMNS | changes), tmp_path / "t.parquet")
    return stored_rows(str(tmp_path / "t.parquet"), config, slices=slices)


def test_any_rows_are_the_batch_that_arrow_gives(tmp_path: Path) -> None:
    path, config = write_clicks(tmp_path / "clicks.parquet"), config_of_task(rank_task())
    rows, table = stored_rows(str(path), config), pq.read_table(path)
    numbers = np.random.default_rng(1).integers(0, len(rows), 300)
    made, expected = rows.batch(numbers), batch_of(table.take(numbers), config)
    assert made.keys() == expected.keys()
    assert all(torch.equal(made[name], expected[name]) for name in made)


def test_chosen_rows_count_from_zero_again(tmp_path: Path) -> None:
    rows = stored(tmp_path).select(np.array([4, 1])).select(np.array([1]))
    assert len(rows) == 1
    assert rows.batch([0])["labels"].tolist() == [[1.0]]


def test_rows_with_equal_features_have_one_hash_whatever_their_labels(tmp_path: Path) -> None:
    hashes = stored(tmp_path, clicked=[0, 1, 0, 1, 1]).hashes
    assert hashes[0] == hashes[4]
    assert len(set(hashes.tolist())) == 4


def test_a_sequence_gives_its_last_ids_alone(tmp_path: Path) -> None:
    batch = stored(tmp_path).batch([0, 1, 2])
    assert batch["seen.ids"].tolist() == [3, 4, 5, 6]
    assert batch["seen.offsets"].tolist() == [0, 3, 4, 4]
    assert batch["item.ids"].tolist() == [1, 2]


def test_equal_rows_have_equal_hashes_and_no_others(tmp_path: Path) -> None:
    hashes = stored(tmp_path).hashes
    assert hashes[0] == hashes[4]
    assert len(set(hashes.tolist())) == 4
    swapped = stored(tmp_path, seen=[[2, 1, 3, 4, 5], [6], [], [-9, 1000], [1, 2, 3, 4, 5]]).hashes
    assert swapped[0] != hashes[0]


def test_a_table_is_read_once_and_again_when_it_changes(tmp_path: Path) -> None:
    first = stored(tmp_path)
    told: list[int] = []
    stored_rows(str(tmp_path / "t.parquet"), CONFIG, on_rows=lambda done, _of: told.append(done))
    assert told == []
    changed = stored(tmp_path, age=[9.0] * 5)
    assert changed.batch([0])["dense"].item() == 9.0
    assert first.batch([0])["dense"].item() == 1.0


def test_slices_are_values_of_a_column_and_null_is_one(tmp_path: Path) -> None:
    rows = stored(tmp_path, slices=("country",))
    codes, values = rows.coded("country", range(5))
    assert [values[code] for code in codes] == ["de", None, "fr", "de", "de"]


def test_texts_are_ids_by_their_hash(tmp_path: Path) -> None:
    rows = stored(tmp_path, item=["a", "b", None, "a", "a"])
    ids = rows.batch(range(5))["item.ids"].tolist()
    assert len(ids) == 4
    assert ids[0] == ids[2] == ids[3] != ids[1]
    lists = stored(tmp_path, item=[["b", "a"], None, [], [], []])
    assert lists.batch([0])["item.ids"].tolist() == [ids[1], ids[0]]


def test_a_long_list_and_ids_outside_of_their_table_are_kept_and_told(tmp_path: Path) -> None:
    rows = stored(tmp_path, item=[list(range(100_000)), None, [], [7], [1]])
    assert rows.batch([0])["item.ids"].shape == (100_000,)
    assert any("ids outside of their tables are hashed into them: item 99.9%" in said for said in rows.warnings())


def test_a_column_of_nulls_is_told(tmp_path: Path) -> None:
    rows = stored(tmp_path, age=pa.array([None] * 5, pa.float64()), item=pa.nulls(5))
    assert [said for said in rows.warnings() if "missing in all rows" in said] == [
        "column age is missing in all rows: the ranker learns nothing from it",
        "column item is missing in all rows: the ranker learns nothing from it",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"clicked": [0, 1, 2, 0, 1]}, "label clicked is 2"),
        ({"clicked": [0, 1, None, 0, 1]}, "label clicked is None"),
        ({"item": [[1], [None], [], [], []]}, "a list of item holds a null"),
        ({"item": [0.5, 1.0, 2.0, 3.0, 4.0]}, "neither ids nor texts"),
        ({"age": ["a", "b", "c", "d", "e"]}, "column age has values of type string"),
    ],
)
def test_a_wrong_column_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        stored(tmp_path, **changes)


def test_a_missing_column_is_refused_from_the_footer_with_the_nearest_name(tmp_path: Path) -> None:
    path = write_clicks(tmp_path / "clicks.parquet", rows=1_000)
    check_table(rank_task(path), str(path))
    with pytest.raises(BadInput, match="click"):
        check_table(rank_task(path, label="click"), str(path))
    with pytest.raises(BadInput, match="sparse column number0 holds double"):
        check_table(rank_task(path, features={"sparse": [{"name": "number0"}]}), str(path))


def test_an_empty_day_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table(COLUMNS).slice(0, 0), tmp_path / "t.parquet")
    with pytest.raises(BadInput, match="the table has no row"):
        stored_rows(str(tmp_path / "t.parquet"), CONFIG)


def test_texts_where_ids_were_before_are_refused(tmp_path: Path) -> None:
    rows = stored(tmp_path)
    known = CONFIG.with_texts(rows.texts)
    with pytest.raises(BadInput, match="sparse column item holds texts, and the ranker knows it as ids"):
        stored(tmp_path, known, item=["1", "2", None, "7", "1"])
    stored(tmp_path, known, item=pa.nulls(5))


def test_a_label_of_one_value_and_a_column_that_some_files_lack_are_told(tmp_path: Path) -> None:
    assert stored(tmp_path, clicked=[0] * 5).warnings()[0] == "label clicked is 0 in all rows: there is nothing to learn"
    folder = tmp_path / "days"
    folder.mkdir()
    pq.write_table(pa.table(COLUMNS), folder / "1.parquet")
    pq.write_table(pa.table(COLUMNS).rename_columns(["age", "item_id", "seen", "clicked", "country"]), folder / "2.parquet")
    said = stored_rows(str(folder), CONFIG).warnings()
    assert any(line.startswith("1 of 2 files have no column item, such as") for line in said)


def test_a_bad_label_is_named_with_its_row_in_the_table(tmp_path: Path) -> None:
    labels = [0] * 70_000 + [3]
    pq.write_table(pa.table({"age": [1.0] * 70_001, "clicked": labels}), tmp_path / "long.parquet")
    with pytest.raises(BadInput, match="label clicked is 3 in row 70000"):
        stored_rows(str(tmp_path / "long.parquet"), RankerConfig(dense=("age",), sparse=(), layers=(), tasks=("clicked",)))
