"""Delta and Iceberg tables that their own libraries wrote: the current snapshot is read, and no row that was deleted."""

from __future__ import annotations

import datetime
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tuneyard.api import BadInput, ScoreData
from tuneyard.data import ScoreRows, inspect
from tuneyard.data.records import Record, read_records
from tuneyard.data.sources import locate

ROWS = [{"prompt": name, "completion": name.upper(), "lang": lang} for name, lang in (("a", "de"), ("b", "en"), ("c", "a b/é%"))]


def rows_of(uri: str | Path) -> list[dict[str, Any]]:
    found = list(read_records(locate(str(uri)).files))
    assert all(isinstance(row, Record) for row in found), found
    return sorted((row.values for row in found if isinstance(row, Record)), key=lambda row: str(row["prompt"]))


def identities(uri: str | Path) -> list[str]:
    return [file.identity() for file in locate(str(uri)).files]


# --- Delta


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path / "table", pa.Table.from_pylist(ROWS))
    return tmp_path / "table"


def test_the_current_version_of_a_delta_table_is_read(delta: Path, tmp_path: Path) -> None:
    import deltalake

    deltalake.write_deltalake(delta, pa.Table.from_pylist([{**ROWS[0], "prompt": "d"}]), mode="append")
    deltalake.DeltaTable(delta).delete("prompt = 'b'")
    assert [row["prompt"] for row in rows_of(delta)] == ["a", "c", "d"]
    assert len(list(delta.glob("*.parquet"))) == 3, "the folder still holds the row that was deleted"
    assert locate(f"file://{delta}").notes == ("a Delta table, read as 2 Parquet files of version 2",)
    found = inspect(str(delta))
    assert (found.format, found.samples, found.bad) == ("prompt-completion", 3, 0)
    scored = ScoreRows.open(ScoreData(source=str(delta), prompt="prompt"), cache_dir=tmp_path / "cache")
    assert sorted(str(row["prompt"]) for row in scored.read(0, 9)) == ["a", "c", "d"]


def test_columns_that_a_delta_table_is_partitioned_by_are_part_of_its_rows(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    day = datetime.date(2026, 11, 24)
    table = pa.Table.from_pylist([{**row, "day": day} for row in [*ROWS, {**ROWS[0], "prompt": "d", "lang": None}]])
    deltalake.write_deltalake(tmp_path / "table", table, partition_by=["lang", "day"])
    found = rows_of(tmp_path / "table")
    assert [(row["prompt"], row["lang"], row["day"]) for row in found] == [
        ("a", "de", day),
        ("b", "en", day),
        ("c", "a b/é%", day),
        ("d", None, day),
    ]
    (tmp_path / "table").rename(tmp_path / "moved")
    assert rows_of(tmp_path / "moved") == found


def test_the_version_is_part_of_the_identity(delta: Path) -> None:
    import deltalake

    before = identities(delta)
    assert before == identities(delta)
    deltalake.write_deltalake(delta, pa.Table.from_pylist(ROWS[:1]), mode="append")
    deltalake.DeltaTable(delta).delete("prompt = 'nothing'")
    assert not set(before) & set(identities(delta))


def z85(content: bytes) -> str:
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{len(content) // 4}I", content)
    return "".join(letters[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))


def commit(table: Path, number: int, *actions: dict[str, Any]) -> None:
    (table / "_delta_log" / f"{number:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def test_a_delta_table_with_deletion_vectors_is_refused(delta: Path) -> None:
    """As Databricks writes them: row 1 of the file is deleted, by a bitmap in the log."""
    roaring = pytest.importorskip("pyroaring")
    log = [json.loads(line) for line in (delta / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
    add = next(action["add"] for action in log if "add" in action)
    bitmap = struct.pack("<IQI", 1681511377, 1, 0) + roaring.BitMap([1]).serialize()
    bitmap += b"\0" * (-len(bitmap) % 4)
    vector = {"storageType": "i", "pathOrInlineDv": z85(bitmap), "sizeInBytes": len(bitmap), "cardinality": 1}
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    commit(delta, 1, {"protocol": features})
    assert len(rows_of(delta)) == 3, "the feature alone deletes nothing"
    commit(
        delta, 2, {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}}, {"add": {**add, "deletionVector": vector}}
    )
    with pytest.raises(BadInput, match="has deletion vectors: its files still hold rows that were deleted") as refused:
        locate(str(delta))
    assert "REORG TABLE" in refused.value.next_step


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"configuration": {"delta.columnMapping.mode": "name"}}, "maps columns"),
        ({"features": ["columnMapping", "somethingNew"]}, "somethingNew"),
    ],
)
def test_a_delta_table_that_its_files_do_not_tell_is_refused(delta: Path, change: dict[str, Any], message: str) -> None:
    log = [json.loads(line) for line in (delta / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
    metadata = next(action["metaData"] for action in log if "metaData" in action)
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"]):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    metadata["schemaString"] = json.dumps(schema)
    features = change.get("features", ["columnMapping"])
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    commit(delta, 1, {"protocol": protocol}, {"metaData": {**metadata, "configuration": change.get("configuration", {})}})
    with pytest.raises(BadInput, match=message):
        locate(str(delta))


def test_a_file_of_the_snapshot_that_is_gone_is_named(delta: Path) -> None:
    lost = next(delta.glob("*.parquet"))
    lost.unlink()
    with pytest.raises(BadInput, match=rf"{lost.name} of version 0 is gone"):
        locate(str(delta))


def test_a_damaged_log_is_told(delta: Path) -> None:
    (delta / "_delta_log" / f"{0:020}.json").write_text("{broken")
    with pytest.raises(BadInput, match="the Delta table cannot be read"):
        locate(str(delta))


def test_files_inside_of_a_table_are_not_read_past_it(delta: Path) -> None:
    for source in (delta.parent, delta / "*.parquet", delta.parent / "**/*.parquet"):
        with pytest.raises(BadInput, match="is a table, and its folder also holds deleted rows") as refused:
            locate(str(source))
        assert refused.value.next_step == f"point data.source at the table itself: {delta}"


def test_without_the_library_the_command_that_installs_it_is_told(delta: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    with pytest.raises(BadInput, match="a Delta table, and deltalake is not installed") as refused:
        locate(str(delta))
    assert refused.value.next_step == "pip install 'tuneyard[tables]'"


# --- Iceberg


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    pytest.importorskip("sqlalchemy")
    (tmp_path / "warehouse").mkdir()
    found = sql.SqlCatalog("tests", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    found.create_namespace("n")
    return found


@pytest.fixture
def iceberg(catalog: Any) -> Any:
    content = pa.Table.from_pylist(ROWS)
    table = catalog.create_table("n.t", schema=content.schema)
    table.append(content)
    return table


def folder_of(table: Any) -> Path:
    return Path(table.location().removeprefix("file://"))


def test_the_current_snapshot_of_an_iceberg_table_is_read(iceberg: Any, tmp_path: Path) -> None:
    folder = folder_of(iceberg)
    before = identities(folder)
    iceberg.append(pa.Table.from_pylist([{**ROWS[0], "prompt": "d"}]))
    iceberg.delete("prompt = 'b'")
    assert [row["prompt"] for row in rows_of(folder)] == ["a", "c", "d"]
    assert len(list((folder / "data").glob("*.parquet"))) == 3
    assert not set(before) & set(identities(folder))
    snapshot = iceberg.current_snapshot().snapshot_id
    assert locate(str(folder)).notes == (f"an Iceberg table, read as 2 Parquet files of snapshot {snapshot}",)
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(folder)
    assert [row["prompt"] for row in rows_of(tmp_path / "copy")] == ["a", "c", "d"], "a table may be moved"


def test_an_iceberg_table_by_its_hint_and_by_one_of_its_metadata_files(iceberg: Any) -> None:
    folder = folder_of(iceberg)
    first = sorted((folder / "metadata").glob("*.metadata.json"))[-1]
    iceberg.append(pa.Table.from_pylist(ROWS[:1]))
    assert len(rows_of(folder)) == 4
    assert len(rows_of(first)) == 3, "an earlier version, by its file"
    (folder / "metadata" / "version-hint.text").write_text(first.name)
    assert len(rows_of(folder)) == 3


def test_files_inside_of_an_iceberg_table_are_not_read_past_it(iceberg: Any) -> None:
    for source in (folder_of(iceberg).parent, folder_of(iceberg) / "data" / "*.parquet"):
        with pytest.raises(BadInput, match="is a table, and its folder also holds deleted rows"):
            locate(str(source))


def test_metadata_files_with_the_same_number_are_not_guessed_between(iceberg: Any) -> None:
    newest = max((folder_of(iceberg) / "metadata").glob("*.metadata.json"))
    shutil.copy(newest, newest.with_name(f"{newest.name[:5]}-another.metadata.json"))
    with pytest.raises(BadInput, match="several metadata files with the number 1"):
        locate(str(folder_of(iceberg)))
    assert len(rows_of(newest)) == 3


def test_an_iceberg_table_without_rows_is_empty(catalog: Any) -> None:
    table = catalog.create_table("n.empty", schema=pa.Table.from_pylist(ROWS).schema)
    with pytest.raises(BadInput, match="the Iceberg table is empty"):
        locate(str(folder_of(table)))


def test_an_iceberg_table_whose_column_was_renamed_is_refused(iceberg: Any) -> None:
    with iceberg.update_schema() as update:
        update.add_column("more", iceberg.schema().find_type("prompt"))
    assert rows_of(folder_of(iceberg)) == ROWS_SORTED, "files have fewer columns"
    with iceberg.update_schema() as update:
        update.delete_column("lang")
    assert "lang" not in rows_of(folder_of(iceberg))[0], "files have more columns"
    with iceberg.update_schema() as update:
        update.rename_column("prompt", "question")
    with pytest.raises(BadInput, match="column question was renamed"):
        locate(str(folder_of(iceberg)))


ROWS_SORTED = sorted(ROWS, key=lambda row: row["prompt"])


def test_an_iceberg_table_with_delete_files_is_refused(iceberg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library writes none: a data file of the scan gets one, as engines that merge on read write them."""
    from pyiceberg.table import DataScan

    plan = DataScan.plan_files

    def with_deletes(scan: Any) -> Any:
        for task in plan(scan):
            task.delete_files.add(task.file)
            yield task

    monkeypatch.setattr(DataScan, "plan_files", with_deletes)
    with pytest.raises(BadInput, match="has delete files"):
        locate(str(folder_of(iceberg)))
