"""The reader of wide tables: any projection, filter, batch size, rank and place of resume gives the rows that were written, in order."""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders.feature_tables import ENTRIES, feature_rows, projected, rows_of, table_at, value_of

from tuneyard.api import BadInput
from tuneyard.data.file_types import DataFile, FoundFile
from tuneyard.data.tables import Coalescing, Cursor, Table, TableReader, open_table
from tuneyard.data.tables.ranges import Range, coalesced
from tuneyard.data.tables.table import table_of

ROWS = feature_rows(150)
NAMES = [*(f"dense{k}" for k in range(10)), *(f"ids{k}" for k in range(5)), "id", "floats", "id_lists", *ENTRIES]
few = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=["files of several row groups", "a file per row group"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    file_bytes = 12_000 if "several" in request.param else 1
    return table_at(tmp_path_factory.mktemp("table") / "t", ROWS, row_group_rows=16, file_bytes=file_bytes)


@few
@given(features=st.lists(st.sampled_from(NAMES), min_size=1, unique=True), rows=st.none() | st.integers(1, 200))
def test_a_projection_gives_the_rows_that_were_written(table: Table, features: list[str], rows: int | None) -> None:
    reader = TableReader(table, features, batch_rows=rows)
    batches = list(reader)
    assert rows_of(batches) == projected(ROWS, features)
    if rows is not None:
        assert {batch.num_rows for batch in batches[:-1]} <= {rows}
    assert all(batch.schema.equals(reader.schema) for batch in batches)


@few
@given(rows=st.integers(1, 60), taken=st.integers(0, 12), filtered=st.booleans())
def test_a_reader_that_resumes_gives_the_same_batches_as_one_that_went_on(table: Table, rows: int, taken: int, filtered: bool) -> None:
    options: dict[str, Any] = {"batch_rows": rows, "where": [("dense1", ">", 0.0)] if filtered else None}
    whole = [batch.to_pylist() for batch in TableReader(table, ["id", "ids1"], **options)]
    first = TableReader(table, ["id", "ids1"], **options)
    for _, _batch in zip(range(taken), first, strict=False):
        pass
    taken = min(taken, len(whole))
    saved = json.loads(json.dumps(first.cursor.to_dict()))
    second = TableReader(table, ["id", "ids1"], start=Cursor.from_dict(saved), **options)
    assert [batch.to_pylist() for batch in second] == whole[taken:]


def test_resuming_reads_nothing_before_the_cursor(table: Table) -> None:
    *_, (file, group) = table.row_groups
    late = TableReader(table, ["dense1"], start=Cursor(file, group), batch_rows=4)
    assert len(rows_of(late)) == table.files[file].group_rows[group]
    assert late.traffic.requests == 1
    assert late.traffic.footer_requests == 0  # the table has read it


@few
@given(ranks=st.integers(1, 20))
def test_ranks_share_the_rows(table: Table, ranks: int) -> None:
    parts = [rows_of(TableReader(table, ["id"], rank=rank, ranks=ranks, batch_rows=7)) for rank in range(ranks)]
    assert sorted(row["id"] for part in parts for row in part) == list(range(len(ROWS)))


@pytest.mark.parametrize(
    ("features", "options"),
    [(["floats[99]"], {}), (["id", "floats[99]"], {"where": [("id", ">=", 20)]}), (["id"], {"where": [("floats[99]", ">", 0.5)]})],
)
def test_an_entry_that_no_row_has_is_told_once(table: Table, features: list[str], options: dict[str, Any]) -> None:
    reader = TableReader(table, features, **options)
    with pytest.warns(UserWarning, match=r"none of \d+ rows has floats\[99\]: all are null; is it a key of floats\?") as told:
        list(reader)
    assert len(told) == 1


def test_an_entry_that_one_row_has_is_not_told(table: Table) -> None:
    rare = next(number for number, row in enumerate(ROWS) if number > 100 and "1" in row["floats"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(TableReader(table, ["id", "floats[1]"], where=[("id", "=", rare)]))
        list(TableReader(table, ["floats[1]"], rank=1, ranks=2))
        next(iter(TableReader(table, ["floats[99]"])))  # a reader that stopped early has not seen enough to tell


PREDICATES = st.one_of(
    st.tuples(st.just("id"), st.sampled_from(["<", "<=", ">", ">=", "=", "!="]), st.integers(-5, 160)),
    st.tuples(st.sampled_from(["dense1", "dense2", "floats[1]"]), st.sampled_from(["<", ">"]), st.floats(-2, 2)),
    st.tuples(st.just("id"), st.just("in"), st.lists(st.integers(0, 160), min_size=1, max_size=4)),
)
COMPARE = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "in": lambda a, b: a in b,
}


@few
@given(where=st.lists(st.lists(PREDICATES, min_size=1, max_size=3), min_size=1, max_size=2), rows=st.none() | st.integers(1, 50))
def test_a_filter_keeps_the_rows_that_match(table: Table, where: list[list[tuple[str, str, Any]]], rows: int | None) -> None:
    def matches(row: dict[str, Any]) -> bool:
        def holds(name: str, operator: str, value: Any) -> bool:
            found = value_of(row, name)
            return found is not None and bool(COMPARE[operator](found, value))

        return any(all(holds(*one) for one in group) for group in where)

    reader = TableReader(table, ["id", "ids0", "id_lists[2]"], where=where, batch_rows=rows)
    assert rows_of(reader) == projected(filter(matches, ROWS), ["id", "ids0", "id_lists[2]"])


def test_row_groups_that_cannot_match_are_not_read(table: Table) -> None:
    reader = TableReader(table, ["dense1", "ids1"], where=[("id", ">=", 140)])
    assert len(rows_of(reader)) == 10
    assert reader.traffic.requests <= 4  # two row groups, each in two steps
    nothing = TableReader(table, ["dense1"], where=[("id", ">", 10**6)])
    assert rows_of(nothing) == []
    assert nothing.traffic.requests == 0


def test_batches_inside_a_row_group_share_its_memory(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", ({"x": float(n)} for n in range(40)), row_group_rows=20)
    batches = list(TableReader(table, ["x"], batch_rows=8))
    starts = [batch.column(0).buffers()[1].address for batch in batches]
    assert [batch.num_rows for batch in batches] == [8] * 5
    assert starts[0] == starts[1]  # rows 0-7 and 8-15: slices of one buffer
    assert starts[3] == starts[4]  # rows 24-31 and 32-39
    assert len(set(starts)) == 3  # rows 16-23 lie over the border and are put together
    assert [batch.num_rows for batch in TableReader(table, ["x"], batch_rows=12, drop_last=True)] == [12, 12, 12]


def test_neighbours_come_in_one_request_and_holes_are_counted(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = table_at(tmp_path / "t", [pa.table({f"c{k}": random.normal(size=500) for k in range(20)})], row_group_rows=500)
    alone = TableReader(table, ["c2", "c10"], coalescing=Coalescing(0))
    merged = TableReader(table, ["c2", "c10"], coalescing=Coalescing(1 << 20))
    assert rows_of(alone) == rows_of(merged)
    assert (alone.traffic.requests, merged.traffic.requests) == (2, 1)
    assert alone.traffic.read_bytes == alone.traffic.wanted_bytes == merged.traffic.wanted_bytes
    assert merged.traffic.read_bytes > 4 * merged.traffic.wanted_bytes


@given(
    chunks=st.lists(st.tuples(st.integers(0, 600), st.integers(1, 300)), max_size=30),
    hole=st.integers(0, 500),
    longest=st.integers(1, 2000),
)
def test_requests_cover_the_ranges_and_never_lie_closer_than_a_hole(chunks: list[tuple[int, int]], hole: int, longest: int) -> None:
    wanted, at = [], 0
    for gap, size in chunks:
        wanted.append(Range(at + gap, at + gap + size))
        at = wanted[-1].stop
    plan = coalesced(wanted, Coalescing(hole, longest))
    assert all(any(one.start <= range_.start and range_.stop <= one.stop for one in plan) for range_ in wanted)
    for one, following in itertools.pairwise(plan):
        assert following.start - one.stop > hole or following.stop - one.start > longest


def test_a_remote_table_is_read_through_its_file_system(tmp_path: Path) -> None:
    local = table_at(tmp_path / "t", ROWS, row_group_rows=16, file_bytes=12_000)
    store = fsspec.filesystem("memory")
    files = []
    for number, file in enumerate(local.files):
        content = Path(file.file.path).read_bytes()
        store.pipe(f"/bucket/{number}.parquet", content)
        found = FoundFile(f"memory://bucket/{number}.parquet", f"/bucket/{number}.parquet", len(content), "v1", store)
        files.append(DataFile(found, "parquet"))
    reader = TableReader(table_of("memory://bucket", files), ["id", "ids1", "floats[3]"], batch_rows=9)
    assert rows_of(reader) == projected(ROWS, ["id", "ids1", "floats[3]"])
    assert reader.traffic.requests == len(local.row_groups)  # at most 1 MiB lies between the columns


def test_ten_thousand_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({f"f{k}": [float(k), None] for k in range(10_000)}), tmp_path / "wide.parquet")
    table = open_table(str(tmp_path / "wide.parquet"))
    assert rows_of(TableReader(table, ["f9999", "f17"])) == [{"f9999": 9999.0, "f17": 17.0}, {"f9999": None, "f17": None}]
    with pytest.raises(BadInput, match="did you mean f999"):
        TableReader(table, ["f99999"])


def test_nested_values_pass_through_whole(tmp_path: Path) -> None:
    rows = [{"deep": [[{"a": 1, "b": [1.5]}], []], "pair": {"x": 1, "y": [2]}, "n": n} for n in range(5)]
    table = table_at(tmp_path / "t", rows, row_group_rows=2)
    assert rows_of(TableReader(table, ["pair", "deep"], batch_rows=3)) == projected_plain(rows, ["pair", "deep"])


def projected_plain(rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names} for row in rows]


def test_a_feature_that_some_files_lack_is_null_there_and_costs_no_read(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "t" / "0.parquet")
    pq.write_table(pa.table({"b": [[3], None], "a": [3, 4]}), tmp_path / "t" / "1.parquet")
    table = open_table(str(tmp_path / "t"))
    assert rows_of(TableReader(table, ["b", "a"], batch_rows=3)) == [
        {"b": None, "a": 1},
        {"b": None, "a": 2},
        {"b": [3], "a": 3},
        {"b": None, "a": 4},
    ]
    only_b = TableReader(table, ["b"])
    assert len(rows_of(only_b)) == 4
    assert only_b.traffic.requests == 1


def test_a_table_without_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "none.parquet")
    table = open_table(str(tmp_path / "none.parquet"))
    assert table.rows == 0
    for rows in (None, 4):
        reader = TableReader(table, ["a"], batch_rows=rows)
        assert list(reader) == []
        assert list(TableReader(table, ["a"], start=reader.cursor)) == []


def test_each_iteration_adds_a_line_to_the_access_log(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", ROWS)
    log = tmp_path / "logs" / "access.jsonl"
    reader = TableReader(table, ["ids1", "floats[3]"], where=[("id", "<", 40)], access_log=log)
    assert len(rows_of(reader)) == 40
    for _ in TableReader(table, ["dense1"], access_log=log):
        break
    first, second = (json.loads(line) for line in log.read_text().splitlines())
    assert (first["features"], first["rows"], first["bytes"]) == (["ids1", "floats[3]", "id"], 40, reader.traffic.read_bytes)
    assert (second["features"], second["rows"]) == (["dense1"], 16)
