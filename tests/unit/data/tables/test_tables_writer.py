"""The writer: rows, files of rows and Arrow batches become a table; features come and go; types do not change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.feature_tables import feature_rows, projected, rows_of

from tuneyard.api import BadInput
from tuneyard.data.tables import TableReader, TableWriter, open_table, write_table

ROWS = feature_rows(90, seed=2)


def everything(folder: Path) -> list[dict[str, Any]]:
    table = open_table(str(folder))
    return rows_of(TableReader(table))


@settings(max_examples=10, deadline=None)
@given(group=st.integers(10, 100), file_bytes=st.sampled_from([1, 8000, 1 << 30]), cut=st.integers(1, 90))
def test_rows_come_back_in_order_whatever_the_sizes(
    tmp_path_factory: pytest.TempPathFactory, group: int, file_bytes: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("w") / "t"
    with TableWriter(str(folder), row_group_rows=group, file_bytes=file_bytes) as writer:
        for start in range(0, len(ROWS), cut):
            writer.write(ROWS[start : start + cut])
    table = open_table(str(folder))
    assert writer.rows == table.rows == len(ROWS)
    assert [file.uri.rpartition("/")[2] for file in table.files] == writer.files
    assert all(rows == group for file in table.files[:-1] for rows in file.group_rows[:-1])
    names = ["id", "dense3", "ids2", "floats", "id_lists"]
    assert rows_of(TableReader(table, names)) == projected(ROWS, names)


def test_json_lines_become_a_table(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    written = write_table(str(tmp_path / "t"), str(tmp_path / "log.jsonl"), row_group_rows=32)
    assert written.rows == len(ROWS)
    assert rows_of(TableReader(open_table(str(tmp_path / "t")), ["id", "floats[3]"])) == projected(ROWS, ["id", "floats[3]"])


def test_arrow_batches_and_rows_keep_their_order(tmp_path: Path) -> None:
    source = [{"a": 1}, pa.RecordBatch.from_pydict({"a": [2, 3]}), {"a": 4}, pa.table({"a": [5]})]
    write_table(str(tmp_path / "t"), source, row_group_rows=2)
    assert [row["a"] for row in everything(tmp_path / "t")] == [1, 2, 3, 4, 5]


def test_features_come_and_go(tmp_path: Path) -> None:
    rows = [{"a": 1}, {"a": 2, "b": [1]}, {"b": [2]}, {"c": "x"}]
    with TableWriter(str(tmp_path / "u"), row_group_rows=2) as writer:
        writer.write(rows[:2])
        writer.write(rows[2:])
    assert len(writer.files) == 2  # c is new in the second row group, and starts a file
    assert everything(tmp_path / "u") == [{"a": row.get("a"), "b": row.get("b"), "c": row.get("c")} for row in rows]


def test_what_is_unknown_at_first_gets_its_type_later(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": None, "b": [], "m": {}, "k": 1}, {"a": 1.5, "b": [7], "m": {"3": 0.5}, "k": 2}]
    write_table(str(tmp_path / "t"), [rows[0]], row_group_rows=1)
    write_table(str(tmp_path / "t"), [rows[1]], row_group_rows=1, append=True)
    table = open_table(str(tmp_path / "t"))
    assert rows_of(TableReader(table, ["a", "b", "m[3]", "k"])) == [
        {"a": None, "b": None, "m[3]": None, "k": 1},
        {"a": 1.5, "b": [7], "m[3]": 0.5, "k": 2},
    ]


def test_whole_numbers_among_fractions_are_fractions(tmp_path: Path) -> None:
    rows = [{"x": 1.5, "y": [0.5], "m": {"1": 0.5}}, {"x": 2, "y": [1], "m": {"1": 2}}]
    write_table(str(tmp_path / "t"), [pa.table({"x": [1.5]})], row_group_rows=1)
    with TableWriter(str(tmp_path / "u"), row_group_rows=1) as writer:
        for row in rows:
            writer.write([row])
    assert everything(tmp_path / "u") == [{"x": 1.5, "y": [0.5], "m": [(1, 0.5)]}, {"x": 2.0, "y": [1.0], "m": [(1, 2.0)]}]


def test_a_given_schema_decides(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.float32()), ("m", pa.map_(pa.int64(), pa.float32())), ("later", pa.list_(pa.int32()))])
    write_table(str(tmp_path / "t"), [{"x": 1, "m": {"2": 1}}, {"x": 0.5, "later": [1]}], schema=schema)
    found = open_table(str(tmp_path / "t")).schema
    assert {field.name: field.type for field in found} == {field.name: field.type for field in schema}


def test_a_source_without_rows_is_refused_or_gives_a_table_of_the_given_schema(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="the source has no rows") as error:
        write_table(str(tmp_path / "t"), [])
    assert "schema=" in error.value.next_step
    schema = pa.schema([("x", pa.float32()), ("m", pa.map_(pa.int64(), pa.float32()))])
    assert write_table(str(tmp_path / "t"), [], schema=schema).files == ["part-00000.parquet"]
    assert open_table(str(tmp_path / "t")).schema == schema
    assert everything(tmp_path / "t") == []
    assert write_table(str(tmp_path / "t"), [], append=True).files == []
    write_table(str(tmp_path / "t"), [{"x": 1}], append=True)
    assert everything(tmp_path / "t") == [{"x": 1.0, "m": None}]


def test_tables_and_writers_print_as_one_line(tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    assert repr(write_table(folder, ROWS)) == f"TableWriter({folder!r}: 1 file, 90 rows)"
    table = open_table(folder)
    assert repr(table) == f"Table({folder!r}: 1 file, 90 rows, {len(table.schema)} columns)"
    assert "dense3" not in repr(table.files)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"x": 1}, {"x": "two"}], r"row 2: feature 'x': 'two' cannot be stored"),
        ([{"x": 1, "y": 1}, {"x": 1}, {"y": [1]}], r"row 3: feature 'y': \[1\] cannot be stored"),
        ([{"m": {"1": 1}}, {"m": {"1": "a"}}], r"row 2: feature 'm'"),
        ([{"x": 2**70}], r"row 1: feature 'x'"),
        ([{}, {}], "row 1: neither this row"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_row(tmp_path: Path, rows: list[Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        write_table(str(tmp_path / "t"), rows)
    assert not list(tmp_path.glob("t/*"))


def test_a_type_that_changes_between_batches_is_refused_by_name(tmp_path: Path) -> None:
    writer = TableWriter(str(tmp_path / "t"), row_group_rows=1)
    writer.write([{"x": 1}])
    with pytest.raises(BadInput, match="feature 'x' was int64 before, and is string from row 2 on"):
        writer.write([{"x": "two"}])
    write_table(str(tmp_path / "u"), [{"x": 1}])
    with pytest.raises(BadInput, match="feature 'x' was int64 before, and is double"):
        write_table(str(tmp_path / "u"), [{"x": 1.5}], append=True)


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(BadInput, match=r"log.jsonl:2: not JSON"):
        write_table(str(tmp_path / "t"), str(tmp_path / "log.jsonl"))


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    write_table(str(tmp_path / "t"), [{"a": 1}])
    with pytest.raises(BadInput, match="holds files already"):
        write_table(str(tmp_path / "t"), [{"a": 2}])
    assert write_table(str(tmp_path / "t"), [{"a": 2}], append=True).files == ["part-00001.parquet"]
    assert everything(tmp_path / "t") == [{"a": 1}, {"a": 2}]


def test_files_before_a_failure_are_whole(tmp_path: Path) -> None:
    def rows() -> Any:
        yield from ({"a": number} for number in range(9000))
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write_table(str(tmp_path / "t"), rows(), row_group_rows=1000, file_bytes=1)
    assert [row["a"] for row in everything(tmp_path / "t")] == list(range(8000))


def test_files_are_closed_at_their_size(tmp_path: Path) -> None:
    written = write_table(
        str(tmp_path / "t"), ({"a": number * 7919 % 10007} for number in range(4000)), row_group_rows=500, file_bytes=3000
    )
    sizes = [(tmp_path / "t" / name).stat().st_size for name in written.files]
    assert len(sizes) > 2
    assert max(sizes) < 3000 + 500 * 8 + 2000
    assert all(pq.read_metadata(tmp_path / "t" / name).num_rows % 500 == 0 for name in written.files)
