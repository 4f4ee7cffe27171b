"""Streamed rows of programs: each exactly once per epoch, the rows and the order of stored ones, found again by a cursor."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders.images import encoded

from tuneyard.api import BadInput, TrainData
from tuneyard.data import Prepared, dataset, prepare_rows, read_so_far
from tuneyard.data.images import ImageColumn
from tuneyard.data.row_records import Record
from tuneyard.data.shared.place import Wanted
from tuneyard.data.stream import row_recipe
from tuneyard.data.stream import splits as splits_module
from tuneyard.data.stream import windows as windows_module
from tuneyard.tracking.events import Event, Warned

COUNT = 640


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits_module, "LEAST_SPLIT_BYTES", 2048)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_module, "_FIRST_BYTES", 2048)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Each row has its own number, some lack a column, and the last lines are damaged."""
    path = tmp_path / "rows.jsonl"
    values = [{"x": [i % 8 / 8, i // 8 / 8], "y": i, **({"note": "odd"} if i % 2 else {})} for i in range(COUNT)]
    path.write_text("".join(json.dumps(value) + "\n" for value in values) + '{"x": "wide", "y": 1}\n{"x": [1.0')
    return path


def opened(source: Path, cache: Path, emit: Any = lambda _: None, **changes: Any) -> Prepared:
    given = {"source": str(source), "streaming": True, "workers": 0} | changes
    if given["streaming"] is None:
        del given["streaming"]
    return prepare_rows(TrainData.model_validate(given), seed=3, cache_dir=cache, emit=emit)


def read(prepared: Prepared, first: int, end: int) -> list[Any]:
    return [prepared.train[prepared.order.at(place)] for place in range(first, end)]


@pytest.mark.parametrize("shuffle", [True, False])
def test_streamed_rows_are_the_stored_ones_in_their_order(shuffle: bool, rows: Path, tmp_path: Path) -> None:
    """Of one window, with the same rows held out."""
    both = [opened(rows, tmp_path / "cache", streaming=way, validationFraction=0.1, shuffle=shuffle) for way in (True, None)]
    streamed, stored = both

    held_out = [[each.validation[number] for number in range(len(each.validation))] for each in both]
    assert held_out[0] == held_out[1] != []
    assert read(streamed, 0, 1200) == read(stored, 0, 1200)
    report = read_so_far(streamed)
    assert (report.rows, report.validation_rows) == (len(stored.train), len(held_out[0]))
    assert (report.samples, report.bad, len(report.bad_examples)) == (COUNT, 2, 2)
    assert (stored.report.samples, stored.report.bad, len(stored.report.bad_examples)) == (COUNT, 2, 2)


@pytest.mark.usefixtures("small_windows")
def test_each_row_comes_once_in_an_epoch_and_a_cursor_finds_its_place(rows: Path, tmp_path: Path) -> None:
    whole = opened(rows, tmp_path / "cache")
    epochs = [read(whole, epoch * COUNT, (epoch + 1) * COUNT) for epoch in range(2)]
    assert [Counter(row["y"] for row in epoch) for epoch in epochs] == [Counter(range(COUNT))] * 2
    assert epochs[0] != epochs[1]
    assert len(whole.train._starts) > 4, "several windows"

    for place in (1, 333, COUNT, COUNT + 77):
        resumed = opened(rows, tmp_path / "elsewhere")
        resumed.place(json.loads(json.dumps(whole.cursors(place))))
        assert read(resumed, place, place + 40) == [*epochs[0], *epochs[1]][place : place + 40]


def test_a_cursor_of_other_rows_or_of_stored_ones_is_refused(rows: Path, tmp_path: Path) -> None:
    stream = opened(rows, tmp_path / "cache")
    read(stream, 0, 8)
    cursors, stored = stream.cursors(8), opened(rows, tmp_path / "cache", streaming=None)
    with pytest.raises(BadInput, match="was streamed when the checkpoint was written, and is prepared whole now"):
        stored.place(cursors, stream.contents)
    with pytest.raises(BadInput, match="was prepared whole when the checkpoint was written, and is streamed now"):
        stream.place(stored.cursors(8), stored.contents)
    with rows.open("a") as file:
        file.write('\n{"x": [1.0, 1.0], "y": 7}\n')
    with pytest.raises(BadInput, match="has other rows than when the checkpoint was written"):
        opened(rows, tmp_path / "cache").place(cursors, {})


def test_too_many_bad_rows_and_none_held_out_are_refused(rows: Path, tmp_path: Path) -> None:
    with rows.open("a") as file:
        file.write('"y": 1}\n' * COUNT)
    stream = opened(rows, tmp_path / "cache", validationFraction=1e-9)
    with pytest.raises(BadInput, match=r"rows are bad \(50\.0%; 1\.0% are tolerated\)"):
        read(stream, 0, COUNT + 1)
    assert stream.validation is not None
    with pytest.raises(BadInput, match=r"no row is held out\n.*raise data\.validationFraction"):
        stream.validation.build()


@pytest.mark.parametrize("value", ["x" * 800, b"x" * 800, [0.5] * 100, [[0.5] * 50, [0.5] * 50], [b"x" * 800], {"of": [1] * 100}])
def test_rows_that_are_fitted_at_once_are_bounded_in_bytes(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "_BATCH_BYTES", 8000)
    assert len(dataset.next_records(iter([Record("row 1", {"x": value})] * 20))) == 10


def test_a_data_set_for_evaluation_is_made_like_the_rows(rows: Path, tmp_path: Path) -> None:
    stream = opened(rows, tmp_path / "cache", validation={"source": str(rows)}, maxBadFraction=0.1)
    assert [stream.validation[number]["y"] for number in range(len(stream.validation or ()))] == list(range(COUNT))


def test_images_are_decoded_to_one_size_and_bad_ones_are_told_by_their_row(tmp_path: Path) -> None:
    photos = [encoded(20 + i % 7, 30 + i % 5, "PNG" if i % 2 else "JPEG") for i in range(60)]
    photos[7] = photos[7][:100]
    path = tmp_path / "photos.parquet"
    pq.write_table(pa.table({"photo": pa.array(photos, pa.binary()), "label": list(range(60))}), path, row_group_size=10)
    said: list[Event] = []
    how: dict[str, Any] = {"streaming": None, "validationFraction": 0.2, "maxBadFraction": 0.1}
    small, large = (opened(path, tmp_path / "cache", said.append, **how, images={"column": "photo", "shortSide": side}) for side in (8, 16))

    found = [[each.validation[number] for number in range(len(each.validation))] for each in (small, large)]
    assert {row["photo"].shape[0] for row in found[0]} == {8}
    assert {row["photo"].shape[0] for row in found[1]} == {16}
    assert [row["label"] for row in found[0]] == [row["label"] for row in found[1]], "another size holds out no other row"
    labels = {row["label"] for row in [*found[0], *read(small, 0, 59 - len(found[0]))]}
    assert labels == {*range(60)} - {7}
    assert read_so_far(small).bad == 1
    assert any(isinstance(event, Warned) and "photos.parquet:row 8: the image is damaged" in event.message for event in said)

    older = tmp_path / "little" / "shards" / "images-0.shard"
    older.parent.mkdir(parents=True)
    older.write_bytes(bytes(50_000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_recipe, "KEPT_BYTES", 40_000)
        patch.setattr(row_recipe, "_KEPT_SHARDS", 1)
        patch.setattr(row_recipe, "_BATCH_BYTES", 1500)  # less than two images
        again = opened(path, tmp_path / "little", **how, images={"column": "photo", "shortSide": 16})
        assert Counter(row["label"] for row in read(again, 0, 96)) == Counter(row["label"] for row in read(large, 0, 96))
    sizes = {each.stat().st_ino: each.stat().st_size for each in (tmp_path / "little" / "shards").glob("*.shard")}
    assert 0 < sum(sizes.values()) <= 40_000 + 2 * max(sizes.values())
    assert not older.exists(), "shards of an older version give room"

    with pytest.raises(BadInput, match=r"there is no column image\n.*set data\.images\.column: photo, label"):
        opened(path, tmp_path / "cache", streaming=None, images={"shortSide": 8})
    with pytest.raises(BadInput, match="column label has no bytes of an image but int"):
        opened(path, tmp_path / "cache", streaming=None, images={"column": "label", "shortSide": 8})


def test_a_split_with_images_is_written_as_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, side, count, batch = tmp_path / "photos.parquet", 64, 80, 50_000
    table = {"photo": pa.array([encoded(8, 8, "PNG")] * count, pa.binary()), "label": list(range(count))}
    pq.write_table(pa.table(table), path)
    monkeypatch.setattr(row_recipe, "_BATCH_BYTES", batch)
    held, decoded = list[int](), ImageColumn.decoded

    def measured(self: ImageColumn, value: Any) -> dict[str, Any]:
        held.append(pa.total_allocated_bytes())
        return decoded(self, value)

    monkeypatch.setattr(ImageColumn, "decoded", measured)
    stream = opened(path, tmp_path / "cache", validationFraction=0.2, images={"column": "photo", "shortSide": side})
    assert stream.validation is not None
    aside = [stream.validation[number]["label"] for number in range(len(stream.validation))]
    assert sorted([*aside, *(row["label"] for row in read(stream, 0, count - len(aside)))]) == list(range(count))
    assert len(held) >= count
    assert count * side * side * 3 > 15 * batch
    assert max(held) - held[0] < 4 * batch, "a split's images are not all in memory"


class Asked:
    """A tier without shards, and the names that it was asked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def fetch(self, wanted: Wanted) -> bool:
        self.names.append(wanted.name)
        return False

    def refuse(self, wanted: Wanted, why: str) -> None:
        raise AssertionError(f"{wanted.name}: {why}")

    def store(self, wanted: Wanted, build_s: float) -> None:
        pass


def test_rows_in_files_of_another_version_are_not_fetched(rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tier, stream = Asked(), opened(rows, tmp_path / "cache").train.stream
    for version in ("rows-8-", "rows-9-"):
        monkeypatch.setattr(row_recipe, "_ROWS", version)
        stream.recipe.build(stream.splits[0], tmp_path / version, tier)
    assert len(set(tier.names)) == 2
