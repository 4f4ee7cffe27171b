"""Streamed tables: the rows of stored ones in a pure order, each once an epoch, whatever the files hold and whoever makes the rows."""

from __future__ import annotations

import os
import pickle
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.builders.rankers import rank_task, small_windows, write_clicks

from tuneyard.api import BadInput, TuneyardError
from tuneyard.data.prepared_order import PreparedOrder
from tuneyard.data.shared.place import Counts, SharedShards
from tuneyard.data.shared.tier import Tier
from tuneyard.data.stream.windows import Windows
from tuneyard.data.tables import Pipeline
from tuneyard.ranking import FlatRows, RankerConfig, SparseFeature, access_curves, config_of_task, stored_rows
from tuneyard.ranking.stream import StreamedTable, open_table_stream, opening

CONFIG = RankerConfig(
    dense=("age",), sparse=(SparseFeature("item", 100), SparseFeature("seen", 50, length=3)), layers=(), tasks=("clicked",)
)
SEED = 3
Batch = dict[str, torch.Tensor]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def windows() -> Iterator[None]:
    with small_windows(split_bytes=512):
        yield


def opened(where: Path, **how: Any) -> StreamedTable:
    return open_table_stream(str(where), how.pop("config", CONFIG), **({"seed": SEED, "workers": 0} | how))


def write_day(path: Path, rows: int, *, first: int = 0, group: int = 20, **changes: Any) -> Path:
    """Rows that are told apart by `age`."""
    chance = random.Random(first)
    columns: dict[str, Any] = {
        "age": [float(first + row) for row in range(rows)],
        "item": [[chance.randrange(200) for _ in range(chance.randrange(4))] for _ in range(rows)],
        "seen": [None if row % 7 == 0 else [row, 2**40 + row, -row, 5, 6][: row % 6] for row in range(rows)],
        "clicked": [row % 3 // 2 for row in range(rows)],
    }
    types = {"age": pa.float64(), "item": pa.list_(pa.int64()), "seen": pa.list_(pa.int64()), "clicked": pa.int64()}
    arrays = {name: pa.array(values, types[name]) for name, values in columns.items()} | changes
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(arrays), path, row_group_size=group)
    return path


def same(one: Batch, other: Batch) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def ages(table: StreamedTable, positions: range) -> list[int]:
    return [int(age) for age in table.batch(positions)["dense"][:, 0].tolist()]


def test_a_table_of_one_window_has_the_order_of_stored_rows(tmp_path: Path) -> None:
    path, config = write_clicks(tmp_path / "clicks.parquet", rows=3_000), config_of_task(rank_task())
    streamed, stored = opened(path, config=config), stored_rows(str(path), config)
    order = PreparedOrder(Windows.over([1], SEED, shuffle=True), (3_000,))
    positions = np.arange(2_900, 3_300)
    assert same(streamed.batch(positions), stored.batch(order.at_each(positions)))
    assert streamed.ids_per_row == stored.ids_per_row
    assert access_curves(streamed.counted) == access_curves(stored)
    assert streamed.warnings() == stored.warnings()


@pytest.mark.parametrize("seed", range(6))
def test_every_row_comes_once_an_epoch_from_any_files(seed: int, tmp_path: Path, windows: None) -> None:  # noqa: ARG001
    chance, first = random.Random(seed), 0
    for number in range(chance.randint(1, 6)):
        rows = chance.choice([0, 1, 3, 40, 200])
        write_day(tmp_path / "days" / f"{number}.parquet", rows, first=first, group=chance.choice([5, 50, 1_000]))
        first += rows
    if not first:
        write_day(tmp_path / "days" / "last.parquet", 5)
        first = 5
    stored = stored_rows(str(tmp_path / "days"), CONFIG)
    for shuffle in (True, False):
        table = opened(tmp_path / "days", shuffle=shuffle)
        assert table.epoch_rows == first
        epochs = [ages(table, range(epoch * first, (epoch + 1) * first)) for epoch in (0, 1)]
        assert all(sorted(epoch) == list(range(first)) for epoch in epochs)
        if not shuffle:
            assert epochs == [list(range(first))] * 2
        elif first > 5:
            assert epochs[0] != epochs[1]
        numbers = np.array(epochs[0])
        assert same(table.batch(range(first)), stored.batch(numbers))
        assert table.counts.rows == first


def test_one_id_in_each_row_stays_with_its_row_over_several_splits(tmp_path: Path, windows: None) -> None:  # noqa: ARG001
    path = write_day(tmp_path / "day.parquet", 300, item=pa.array([row % 200 for row in range(300)], pa.int64()))
    table, stored = opened(path), stored_rows(str(path), CONFIG)
    assert len(table.stream.splits) > 4
    rows = np.array(ages(table, range(300)))
    assert same(table.batch(range(300)), stored.batch(rows))


def test_empty_row_groups_between_others_are_passed_over(tmp_path: Path, windows: None) -> None:  # noqa: ARG001
    rows = pq.read_table(write_day(tmp_path / "whole.parquet", 90))
    (tmp_path / "t").mkdir()
    with pq.ParquetWriter(tmp_path / "t" / "0.parquet", rows.schema) as writer:
        for start, size in [(0, 0), (0, 30), (30, 0), (30, 0), (30, 45), (75, 15), (90, 0)]:
            writer.write_table(rows.slice(start, size))
    assert pq.read_metadata(tmp_path / "t" / "0.parquet").num_row_groups == 7
    assert ages(opened(tmp_path / "t", shuffle=False), range(180)) == [*range(90), *range(90)]
    assert sorted(ages(opened(tmp_path / "t"), range(90))) == list(range(90))


def test_batches_of_any_size_and_place_are_parts_of_one_order(tmp_path: Path, windows: None) -> None:  # noqa: ARG001
    table = opened(write_day(tmp_path / "t.parquet", 500))
    assert table.stream.windows.count(0) > 3
    whole = ages(table, range(1_200))
    for start, size in [(0, 1), (3, 997), (499, 2), (1_000, 200), (17, 64)]:
        assert ages(opened(tmp_path / "t.parquet"), range(start, start + size)) == whole[start : start + size]


def test_data_workers_change_no_row_and_a_killed_one_is_replaced(tmp_path: Path, windows: None) -> None:  # noqa: ARG001
    path = write_day(tmp_path / "t.parquet", 400)
    whole = ages(opened(path, cache_dir=tmp_path / "alone"), range(400))
    table = opened(path, workers=1)
    workers: Any = table._announce.__self__  # type: ignore[attr-defined]
    found = ages(table, range(100))
    (pid,) = workers.pids
    os.kill(pid, signal.SIGKILL)
    for start in range(100, 400, 50):
        found += ages(table, range(start, start + 50))
    workers.close()
    assert found == whole


def test_a_resume_reads_nothing_behind_its_cursor(tmp_path: Path, windows: None) -> None:  # noqa: ARG001
    path = write_day(tmp_path / "t.parquet", 1_000)
    table = opened(path)
    whole = ages(table, range(1_000))
    resumed = opened(path, cache_dir=tmp_path / "elsewhere")
    resumed.place(table.cursor(900))
    assert ages(resumed, range(900, 1_000)) == whole[900:]
    assert len(resumed.tally.splits) <= 4 * 2
    assert len(resumed.stream.splits) > 20


def test_another_table_under_the_checkpoint_is_refused(tmp_path: Path) -> None:
    before = opened(write_day(tmp_path / "a" / "t.parquet", 100))
    with pytest.raises(BadInput, match="has changed since the checkpoint was written"):
        opened(write_day(tmp_path / "b" / "t.parquet", 101)).place(before.cursor(5))
    with pytest.raises(BadInput, match="has changed"):
        opened(tmp_path / "a" / "t.parquet", shuffle=False).place(before.cursor(5))
    opened(tmp_path / "a").place(before.cursor(5))


def test_a_service_that_does_not_answer_costs_its_patience_once_or_twice(
    tmp_path: Path,
    windows: None,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "LEFT_TO_SERVICE_S", 0.4)
    path = write_day(tmp_path / "t.parquet", 600)
    table = opened(path, service=tmp_path / "streams")
    began = time.monotonic()
    found = ages(table, range(600))
    assert len(table.stream.splits) > 20
    assert 0.4 < time.monotonic() - began < 4
    assert sorted(found) == list(range(600))
    assert list((tmp_path / "streams").glob("*.stream"))


def test_a_limit_takes_the_first_rows(tmp_path: Path, windows: None) -> None:  # noqa: ARG001
    table = opened(write_day(tmp_path / "t.parquet", 300, group=64), limit=130)
    assert table.epoch_rows == 130
    assert sorted(ages(table, range(130))) == list(range(130))


def test_the_disk_holds_a_part_of_the_table_and_no_more(tmp_path: Path) -> None:
    path = write_day(tmp_path / "t.parquet", 2_000)
    with small_windows(split_bytes=2_048, kept_bytes=30_000):
        table = opened(path)
        wanted = ages(table, range(4_000))
    held = sum(file.stat().st_size for file in (tmp_path / "cache" / "shards").glob("*.shard"))
    assert held < 40_000
    with small_windows(split_bytes=2_048):
        again = opened(path, cache_dir=tmp_path / "large")
        assert ages(again, range(4_000)) == wanted
    everything = sum(file.stat().st_size for file in (tmp_path / "large" / "shards").glob("*.shard"))
    assert everything > 2 * held


def test_a_damaged_shard_is_made_again(tmp_path: Path, windows: None) -> None:  # noqa: ARG001
    path = write_day(tmp_path / "t.parquet", 300)
    whole = ages(opened(path), range(300))
    shards = sorted((tmp_path / "cache" / "shards").glob("*.shard"))
    shards[0].write_bytes(shards[0].read_bytes()[:-40])
    content = bytearray(shards[1].read_bytes())
    content[200] ^= 1
    shards[1].write_bytes(content)
    assert ages(opened(path), range(300)) == whole


def test_a_damaged_row_group_is_named_when_it_is_read(tmp_path: Path, windows: None) -> None:  # noqa: ARG001
    path = write_day(tmp_path / "t.parquet", 300)
    at = pq.read_metadata(path).row_group(7).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[at : at + 40] = b"\xff" * 40
    path.write_bytes(content)
    table = opened(path, shuffle=False)
    assert ages(table, range(100)) == list(range(100))
    with pytest.raises(BadInput, match=r"t\.parquet: row group 7 cannot be read"):
        table.batch(range(100, 200))


def test_a_file_that_vanished_or_was_replaced_is_named(tmp_path: Path, windows: None) -> None:  # noqa: ARG001
    for day in range(4):
        write_day(tmp_path / "days" / f"{day}.parquet", 100, first=100 * day)
    table = opened(tmp_path / "days", shuffle=False)
    assert ages(table, range(150)) == list(range(150))
    write_day(tmp_path / "days" / "2.parquet", 100, first=7_000)
    with pytest.raises(BadInput, match=r"2\.parquet"):
        table.batch(range(150, 250))
    (tmp_path / "days" / "3.parquet").unlink()
    with pytest.raises(TuneyardError, match=r"3\.parquet"):
        table.batch(range(300, 320))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"clicked": pa.array([0] * 59 + [2])}, r"t\.parquet, row group 2: label clicked is 2 in row 59"),
        ({"item": pa.array([[1]] * 50 + [[None]] * 10)}, r"t\.parquet, row group 2: a list of item holds a null"),
        ({"age": pa.array(["a"] * 60)}, "column age has values of type string"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    table = opened(write_day(tmp_path / "t.parquet", 60, **changes))
    with pytest.raises(BadInput, match=said):
        table.batch(range(60))


def test_columns_without_values_and_ids_outside_are_told_as_of_stored_rows(tmp_path: Path) -> None:
    changes = {"age": pa.nulls(60), "clicked": pa.array([0] * 60)}
    path = write_day(tmp_path / "t.parquet", 60, **changes)
    streamed, stored = opened(path), stored_rows(str(path), CONFIG)
    streamed.batch(range(60))
    assert streamed.warnings() == stored.warnings()
    assert len(streamed.warnings()) == 3


def test_texts_are_known_by_the_schema(tmp_path: Path) -> None:
    path = write_day(tmp_path / "t.parquet", 60, item=pa.array([["a", "b"]] * 60), seen=pa.nulls(60))
    table, stored = opened(path), stored_rows(str(path), CONFIG)
    assert table.texts == {"item": True}
    order = table.order.at_each(np.arange(60))
    assert same(table.batch(range(60)), stored.batch(order))


def test_a_column_that_a_file_lacks_is_null_there(tmp_path: Path) -> None:
    write_day(tmp_path / "days" / "0.parquet", 50)
    pq.write_table(pq.read_table(tmp_path / "days" / "0.parquet").drop(["item"]), tmp_path / "days" / "1.parquet")
    table, stored = opened(tmp_path / "days"), stored_rows(str(tmp_path / "days"), CONFIG)
    assert same(table.batch(range(100)), stored.batch(table.order.at_each(np.arange(100))))
    assert any("have no column item" in said for said in table.warnings())


def test_entries_of_a_map_column_are_read(tmp_path: Path) -> None:
    maps = pa.array([[(7, float(row))] if row % 2 else [] for row in range(60)], pa.map_(pa.int64(), pa.float64()))
    path = write_day(tmp_path / "t.parquet", 60, numbers=maps)
    config = RankerConfig(dense=("numbers[7]", "numbers[8]"), sparse=(), layers=(), tasks=("clicked",))
    table, stored = opened(path, config=config), stored_rows(str(path), config)
    made, expected = table.batch(range(60)), stored.batch(table.order.at_each(np.arange(60)))
    assert torch.equal(made["dense"].nan_to_num(-1), expected["dense"].nan_to_num(-1))


def test_transforms_are_those_of_stored_rows(tmp_path: Path, windows: None) -> None:  # noqa: ARG001
    path = write_day(tmp_path / "t.parquet", 300)
    steps = Pipeline.of([{"op": "sigrid_hash", "inputs": ["item"], "output": "hashed", "table_size": 50}])
    sparse = (SparseFeature("hashed", 50), SparseFeature("seen", 50, length=3))
    config = RankerConfig(dense=("age",), sparse=sparse, layers=(), tasks=("clicked",), transforms=steps)
    table, stored = opened(path, config=config), stored_rows(str(path), config)
    assert same(table.batch(range(300)), stored.batch(table.order.at_each(np.arange(300))))
    assert (table.texts, table.text_inputs) == (stored.texts, stored.text_inputs)


def shared_batches(days: Path, cache: Path, place: SharedShards, **how: Any) -> tuple[list[Batch], Counts]:
    """All rows of a table with a cache of its own, and what became of shared shards."""
    table, tier = opened(days, cache_dir=cache, **how), Tier(place)
    for split in table.stream.splits:
        table.stream.recipe.build(split, table.stream.folder, tier)
    return [table.batch(range(start, start + 40)) for start in range(0, len(table), 40)], tier.finish()


@pytest.mark.usefixtures("windows")
def test_a_table_that_another_job_has_flattened_is_fetched(tmp_path: Path) -> None:
    """By content: a copy elsewhere is the same table, and a file of the same size and time with another content is another one."""
    place, config = SharedShards(str(tmp_path / "tier"), "ads"), CONFIG
    day = write_day(tmp_path / "days" / "day.parquet", 200)
    first, built = shared_batches(day, tmp_path / "one", place)
    assert built.built == built.stored >= 10
    again, fetched = shared_batches(day, tmp_path / "two", place)
    assert (fetched.built, fetched.fetched, fetched.found) == (0, built.built, 0)
    assert all(map(same, again, first))
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(day.read_bytes())
    copied, of_copy = shared_batches(copy, tmp_path / "three", place)
    assert (of_copy.built, of_copy.fetched) == (0, built.built)
    assert all(map(same, copied, first))
    about = copy.stat()
    item = pq.read_table(day).column("item").combine_chunks()
    write_day(copy, 200, item=pa.ListArray.from_arrays(item.offsets, pa.array(199 - item.values.to_numpy())))
    os.utime(copy, ns=(about.st_atime_ns, about.st_mtime_ns))
    _, of_other = shared_batches(copy, tmp_path / "four", place)
    assert (of_other.built, of_other.fetched) == (built.built, 0)
    _, of_fewer = shared_batches(day, tmp_path / "five", place, config=replace(config, dense=()))
    assert of_fewer.fetched == 0, "other columns give other rows"


def test_a_table_without_rows_and_one_without_files_are_refused(tmp_path: Path) -> None:
    write_day(tmp_path / "days" / "0.parquet", 0)
    with pytest.raises(BadInput, match="the table has no row"):
        opened(tmp_path / "days")
    with pytest.raises(TuneyardError):
        opened(tmp_path / "nowhere")


def test_a_stream_travels_to_another_process(tmp_path: Path) -> None:
    table = opened(write_day(tmp_path / "t.parquet", 60))
    stream = pickle.loads(pickle.dumps(table.stream))
    built = stream.recipe.build(stream.splits[0], tmp_path / "away")
    assert built.name == table.stream.path_of(table.stream.splits[0]).name
    assert isinstance(stream.recipe.open(built).rows, FlatRows)
