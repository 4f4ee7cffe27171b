"""What cannot be read is refused with the file, the cause and the next step, before or where it is met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders.feature_tables import feature_rows, rows_of, table_at

from tuneyard.api import BadInput
from tuneyard.data.tables import Cursor, TableReader, open_table


def folder_of(tmp_path: Path, *columns: dict[str, Any]) -> str:
    folder = tmp_path / "t"
    folder.mkdir()
    for number, one in enumerate(columns):
        pq.write_table(pa.table(one), folder / f"{number}.parquet")
    return str(folder)


@pytest.mark.parametrize("kept", [4, 100, -1, -9])
def test_a_truncated_file_is_named(tmp_path: Path, kept: int) -> None:
    folder = folder_of(tmp_path, {"a": list(range(100))}, {"a": list(range(100))})
    damaged = tmp_path / "t" / "1.parquet"
    damaged.write_bytes(damaged.read_bytes()[:kept])
    with pytest.raises(BadInput, match=r"1\.parquet: its footer cannot be read") as error:
        open_table(folder)
    assert "was the copy or the write cut off?" in error.value.next_step


def test_a_damaged_row_group_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"a": list(range(1000)), "b": ["x" * 9] * 1000})
    path = tmp_path / "t" / "0.parquet"
    pq.write_table(pa.table({"a": list(range(1000))}), path, row_group_size=500, compression="zstd")
    content = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(1).column(0)
    for at in range(chunk.dictionary_page_offset, chunk.dictionary_page_offset + chunk.total_compressed_size):
        content[at] = 0xFF
    path.write_bytes(content)
    reader = TableReader(open_table(folder), ["a"])
    batches = iter(reader)
    assert next(batches).num_rows == 500
    with pytest.raises(BadInput, match=r"0\.parquet: row group 1 cannot be read"):
        next(batches)


def test_a_type_that_changes_between_files_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"column 'a' is int64 in .*0\.parquet and string in .*1\.parquet"):
        open_table(folder_of(tmp_path, {"a": [1]}, {"a": ["x"]}))


def test_another_layout_of_the_same_values_is_no_other_type(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"a": ["x"], "b": [[1]]}), folder / "0.parquet")
    large = pa.table({"a": pa.array(["y"], pa.large_string()), "b": pa.array([[2]], pa.large_list(pa.int64()))})
    pq.write_table(large, folder / "1.parquet")
    pq.write_table(pa.table({"a": pa.array(["z"]).dictionary_encode(), "b": pa.nulls(1)}), folder / "2.parquet")
    reader = TableReader(open_table(str(folder)), ["a", "b"], batch_rows=3)
    assert rows_of(reader) == [{"a": "x", "b": [1]}, {"a": "y", "b": [2]}, {"a": "z", "b": None}]


@pytest.mark.parametrize(
    ("features", "cause", "step"),
    [
        (["dense11"], "there is no feature 'dense11'", "did you mean dense1"),
        (["nothing_alike", "x"], "'nothing_alike' (and 1 more of the projection)", "its columns are "),
        (["id[3]"], "id[3]: column id is int64, not a map", "name the column id"),
        (["id", "ids1", "id"], "names id twice", "once"),
        ([], "names no feature", "at least one"),
    ],
)
def test_a_projection_that_does_not_fit_is_refused_at_once(tmp_path: Path, features: list[str], cause: str, step: str) -> None:
    table = table_at(tmp_path / "t", feature_rows(20))
    with pytest.raises(BadInput) as error:
        TableReader(table, features)
    assert cause in error.value.cause
    assert step in error.value.next_step


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ([("idd", "=", 1)], "did you mean id"),
        ([("id", "~", 1)], "the filter does not fit"),
        ([("id", "between", 3)], "next: the operators are =, ==, !=, <, <=, >, >=, in, not in"),
        ([("id", "=", "one")], "the filter does not fit"),
        (["id > 3"], "is not a filter"),
        ([], "the filter is empty"),
        ([[]], "the filter is empty"),
    ],
)
def test_a_filter_that_does_not_fit_is_refused_at_once(tmp_path: Path, where: Any, said: str) -> None:
    table = table_at(tmp_path / "t", feature_rows(20))
    with pytest.raises(BadInput, match=said):
        TableReader(table, ["id"], where=where)


@pytest.mark.parametrize(
    ("start", "options", "said"),
    [
        (Cursor(0, 0, 17), {}, "after the end of its row group"),
        (Cursor(0, 0, 3), {"rank": 1, "ranks": 2}, "in no row group of this rank"),
        (Cursor(0, 0, 0, "another"), {}, "belongs to other files"),
        (None, {"rank": 2, "ranks": 2}, "there is no such rank"),
        (None, {"batch_rows": 0}, "at least one row"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(tmp_path: Path, start: Cursor | None, options: dict[str, Any], said: str) -> None:
    table = table_at(tmp_path / "t", feature_rows(40))
    with pytest.raises(BadInput, match=said):
        TableReader(table, ["id"], start=start, **options)


@pytest.mark.parametrize("values", [{"file": -1}, {"file": "0"}, {"page": 1}])
def test_what_is_no_cursor_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="not a cursor"):
        Cursor.from_dict(values)


def test_a_table_that_has_changed_refuses_an_old_cursor(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", feature_rows(40))
    reader = TableReader(table, ["id"], batch_rows=5)
    next(iter(reader))
    pq.write_table(pa.table({"id": [1]}), tmp_path / "t" / "part-00009.parquet")
    with pytest.raises(BadInput, match="belongs to other files"):
        TableReader(open_table(str(tmp_path / "t")), ["id"], start=reader.cursor)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(BadInput, match="holds jsonl, not Parquet"):
        open_table(str(tmp_path / "rows.jsonl"))
    with pytest.raises(BadInput, match="no such file or folder"):
        open_table(str(tmp_path / "nowhere"))
    (tmp_path / "empty.parquet").write_bytes(b"")
    with pytest.raises(BadInput, match="the file is empty"):
        open_table(str(tmp_path / "empty.parquet"))


def test_nulls_inside_lists_are_read_as_they_are(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"a": [[1, None], None, []]})
    assert rows_of(TableReader(open_table(folder), ["a"])) == [{"a": [1, None]}, {"a": None}, {"a": []}]


def test_columns_with_dots_and_brackets_are_columns(tmp_path: Path) -> None:
    columns = {"a.b": [1], "a": [{"b": 2}], "m[3]": [3.5], "m": pa.array([[(4, 1.0)]], pa.map_(pa.int64(), pa.float64()))}
    table = open_table(folder_of(tmp_path, columns))
    assert rows_of(TableReader(table, ["a.b", "a", "m[3]", "m[4]"])) == [{"a.b": 1, "a": {"b": 2}, "m[3]": 3.5, "m[4]": 1.0}]
