"""The order of columns: what is predicted is what a reader then reads; a rewrite keeps every row, and may be killed anywhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders.feature_tables import ENTRIES, feature_rows, projected, rows_of, table_at

from tuneyard.api import BadInput
from tuneyard.data.tables import Coalescing, Projections, Table, TableReader, open_table, read_log, reorder, savings
from tuneyard.data.tables.column_order import ColumnReads, best_order

ROWS = feature_rows(120, seed=1)
NAMES = [*(f"dense{k}" for k in range(10)), *(f"ids{k}" for k in range(5)), "id", *ENTRIES]
RULE = Coalescing(hole_bytes=300)


def log_of(*projections: tuple[list[str], int]) -> Projections:
    return Projections({frozenset(names): rows for names, rows in projections})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return table_at(tmp_path_factory.mktemp("table") / "t", ROWS, row_group_rows=20, file_bytes=12_000)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    reads=st.lists(st.tuples(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6), st.integers(1, 500)), min_size=1, max_size=5),
    flatten=st.none() | st.sampled_from([0.0, 0.5]),
)
def test_a_rewrite_keeps_every_feature_of_every_row(
    table: Table, tmp_path: Path, reads: list[tuple[list[str], int]], flatten: float | None
) -> None:
    out = tmp_path / "out"
    shutil.rmtree(out, ignore_errors=True)
    reorder(table, log_of(*reads), str(out), rule=RULE, flatten=flatten)
    ordered = open_table(str(out))
    assert [file.group_rows for file in ordered.files] == [file.group_rows for file in table.files]
    every = [*NAMES, *(f"floats[{key}]" for key in range(8) if key not in (1, 3))]
    assert rows_of(TableReader(ordered, every)) == projected(ROWS, every)


def test_a_map_keeps_the_entries_that_get_no_column(table: Table, tmp_path: Path) -> None:
    reorder(table, log_of((["floats[1]", "id_lists[5]"], 10)), str(tmp_path / "out"), flatten=0.5)
    ordered = open_table(str(tmp_path / "out"))
    assert {"floats[1]", "id_lists[5]"} <= set(ordered.schema.names)
    for found, row in zip(rows_of(TableReader(ordered, ["floats", "id_lists"])), ROWS, strict=True):
        assert dict(found["floats"]) == {int(key): value for key, value in row["floats"].items() if key != "1"}
        assert dict(found["id_lists"]) == {int(key): value for key, value in row["id_lists"].items() if key != "5"}


def wide(folder: Path, columns: int = 60, groups: int = 3) -> Table:
    random = np.random.default_rng(0)
    table = pa.table({f"f{k}": random.normal(size=400 * groups) for k in range(columns)})
    folder.mkdir()
    pq.write_table(table, folder / "0.parquet", row_group_size=400)
    return open_table(str(folder))


def test_what_is_predicted_is_what_is_read(tmp_path: Path) -> None:
    table, rule = wide(tmp_path / "t"), Coalescing(hole_bytes=60_000)
    projections = [[f"f{k}" for k in range(start, 60, 13)] for start in (0, 3, 0, 5)]
    log = tmp_path / "log.jsonl"
    before = [TableReader(table, names, coalescing=rule, access_log=log) for names in projections]
    assert all(len(rows_of(reader)) == 1200 for reader in before)
    found = savings(table, read_log([log]), rule=rule)
    reorder(table, read_log([log]), str(tmp_path / "out"), rule=rule)
    after = [TableReader(open_table(str(tmp_path / "out")), names, coalescing=rule) for names in projections]
    assert all(len(rows_of(reader)) == 1200 for reader in after)
    assert sum(reader.traffic.read_bytes for reader in before) == found.before.read_bytes
    assert sum(reader.traffic.requests for reader in before) == found.before.requests
    assert sum(reader.traffic.read_bytes for reader in after) == pytest.approx(found.after.read_bytes, rel=0.01)
    assert found.ratio < 0.5


def test_popular_columns_come_first_and_unread_ones_last() -> None:
    sizes = {f"f{k}": 100.0 for k in range(10)}
    reads = ColumnReads.of(sizes, {frozenset({"f9", "f2"}): 10, frozenset({"f9", "f5"}): 5})
    assert best_order(reads, Coalescing(hole_bytes=1000))[:3] in (("f9", "f2", "f5"), ("f2", "f9", "f5"))


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_no_order_is_worse_than_the_present_one(data: st.DataObject) -> None:
    names = [f"f{k}" for k in range(data.draw(st.integers(1, 12)))]
    sizes = {name: float(data.draw(st.integers(0, 50))) for name in names}
    projections = data.draw(st.dictionaries(st.frozensets(st.sampled_from(names), min_size=1), st.integers(0, 9), min_size=1, max_size=5))
    reads, rule = ColumnReads.of(sizes, projections), Coalescing(data.draw(st.integers(0, 60)))
    order = best_order(reads, rule)
    assert sorted(order) == sorted(names)
    place = np.array([names.index(name) for name in order])
    assert reads.cost(place, rule) <= reads.cost(np.arange(len(names)), rule)


KILLED = """
import sys
from pathlib import Path
from tuneyard.data.tables import open_table, read_log, reorder
reorder(open_table(sys.argv[1]), read_log([Path(sys.argv[2])]), sys.argv[3], on_file=lambda done, of: print(done, flush=True))
"""


def test_a_rewrite_that_is_killed_is_refused_by_readers_and_goes_on_when_it_is_started_again(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", ROWS, row_group_rows=8)
    log = tmp_path / "log.jsonl"
    for names in (["dense1", "ids3"], ["dense1"]):
        rows_of(TableReader(table, names, access_log=log))
    out = tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", KILLED, table.uri, str(log), str(out)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    written = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert 0 < len(written) < len(table.files)
    with pytest.raises(BadInput, match="was not finished"):
        open_table(str(out))
    rows_of(TableReader(table, ["dense7"], access_log=log))  # the log goes on: the plan of the first start counts
    done = reorder(table, read_log([log]), str(out))
    assert (done.files, done.kept) == (len(table.files) - len(written), len(written))
    assert {name: (out / name).stat().st_mtime_ns for name in written} == written
    names = {tuple(file.schema.names[:2]) for file in open_table(str(out)).files}
    assert len(names) == 1
    assert rows_of(TableReader(open_table(str(out)), NAMES)) == projected(ROWS, NAMES)
    assert reorder(table, read_log([log]), str(out)).files == 0


def test_each_instant_of_a_rewrite_may_be_its_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write to storage fails once; the state in between is refused, and the next start ends with the same table."""
    from tuneyard.storage.local_store import LocalStore

    table = table_at(tmp_path / "t", ROWS[:40], row_group_rows=10)
    real = LocalStore.put_stream
    for fatal in range(len(table.files) + 2):
        calls = 0

        def put_stream(self: LocalStore, *arguments: Any, fatal: int = fatal) -> None:
            nonlocal calls
            calls += 1
            if calls == fatal + 1:
                raise KeyboardInterrupt
            real(self, *arguments)

        out = str(tmp_path / f"out{fatal}")
        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "put_stream", put_stream)
            with pytest.raises(KeyboardInterrupt):
                reorder(table, log_of((["ids1"], 1)), out)
        with pytest.raises(BadInput):
            open_table(out)
        reorder(table, log_of((["ids1"], 1)), out)
        assert rows_of(TableReader(open_table(out), NAMES)) == projected(ROWS[:40], NAMES)


def test_nothing_is_overwritten(table: Table, tmp_path: Path) -> None:
    log = log_of((["ids1"], 1))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="holds files already, such as notes"):
        reorder(table, log, str(tmp_path / "full"))
    for inside in (table.uri, f"{table.uri}/ordered"):
        with pytest.raises(BadInput, match="lies inside the table"):
            reorder(table, log, inside)
    other = table_at(tmp_path / "other", ROWS[:5])
    reorder(other, log, str(tmp_path / "out"))
    with pytest.raises(BadInput, match="holds a rewrite of other files"):
        reorder(table, log, str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ({"flatten": None}, "--flatten 0.1, now not given"),
        ({"rule": Coalescing(hole_bytes=2048)}, "gap 1024 KiB, now 2 KiB"),
        ({"log": log_of((["ids2"], 7))}, "a log of 1 projection over 1 row, now another of 1 projection over 7 rows"),
    ],
)
def test_a_finished_rewrite_with_other_settings_is_refused_with_those_it_has(
    table: Table, tmp_path: Path, again: dict[str, Any], said: str
) -> None:
    made: dict[str, Any] = {"log": log_of((["ids1"], 1)), "out": str(tmp_path / "out"), "flatten": 0.1}
    reorder(table, **made)
    with pytest.raises(BadInput, match="was made with other settings") as error:
        reorder(table, **(made | again))
    assert said in error.value.cause
    assert "another --out" in error.value.next_step
    assert reorder(table, **made).files == 0


def test_an_unfinished_rewrite_with_another_share_of_entries_is_refused(tmp_path: Path) -> None:
    """Its files would be of one plan, and the command of another."""
    table = table_at(tmp_path / "t", ROWS[:40], row_group_rows=10)
    out = str(tmp_path / "out")

    def stop(_done: int, _of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reorder(table, log_of((["ids1"], 1)), out, flatten=0.1, on_file=stop)
    with pytest.raises(BadInput, match=r"was begun, and not finished, with other settings: --flatten 0\.1, now 0\.5"):
        reorder(table, log_of((["ids1"], 1)), out, flatten=0.5)
    assert reorder(table, log_of((["ids1"], 1), (["ids2"], 3)), out, flatten=0.1).kept == 1


def test_a_log_with_a_cut_line_counts_the_others(tmp_path: Path) -> None:
    line = json.dumps({"features": ["a", "b"], "rows": 5})
    (tmp_path / "log.jsonl").write_text(f'{line}\n{{"features": ["a"], "ro\n{line}\n{{"features": "a", "rows": 1}}\n\n')
    found = read_log([tmp_path / "log.jsonl"])
    assert dict(found.rows) == {frozenset({"a", "b"}): 10}
    assert found.skipped_lines == 2


@pytest.mark.parametrize("line", ["[" * 100_000, "9" * 5000, '{"features": ["\\ud800"], "rows": 1}'])
def test_a_line_that_python_cannot_read_is_skipped(tmp_path: Path, line: str) -> None:
    (tmp_path / "log.jsonl").write_text(f'{line}\n{{"features": ["a"], "rows": 5}}\n')
    found = read_log([tmp_path / "log.jsonl"])
    assert (dict(found.rows), found.skipped_lines) == ({frozenset({"a"}): 5}, 1)


def test_entries_of_keys_above_2_to_the_63_get_columns_of_their_own(tmp_path: Path) -> None:
    key = 2**63 + 1
    rows = pa.array([[(key, 1.0), (1, 2.0)], [(1, 3.0), (1, None)], None], pa.map_(pa.uint64(), pa.float64()))
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"f": rows}), tmp_path / "t" / "a.parquet")
    names = ["f", f"f[{key}]", "f[1]", "f[-1]"]
    reorder(open_table(str(tmp_path / "t")), log_of(([f"f[{key}]", "f[1]"], 9)), str(tmp_path / "out"), flatten=0.5)
    before, after = (rows_of(TableReader(open_table(str(tmp_path / name)), names[1:])) for name in ("t", "out"))
    assert before == after == [{names[1]: 1.0, "f[1]": 2.0, "f[-1]": None}, dict.fromkeys(names[1:]), dict.fromkeys(names[1:])]
    assert rows_of(TableReader(open_table(str(tmp_path / "out")), ["f"])) == [{"f": []}, {"f": []}, {"f": None}]


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), ("", "holds no read"), ("[1]\n", r"\(1 lines cannot be used\)")])
def test_a_log_that_says_nothing_is_refused(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "log.jsonl").write_text(content)
    with pytest.raises(BadInput, match=said):
        read_log([tmp_path / "log.jsonl"])


def test_compression_and_metadata_stay(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())], metadata={"origin": "log"})
    pq.write_table(pa.table({"a": [1], "b": [2]}, schema=schema), tmp_path / "t" / "x.parquet", compression="snappy")
    reorder(open_table(str(tmp_path / "t")), log_of((["b"], 1)), str(tmp_path / "out"))
    footer = pq.read_metadata(tmp_path / "out" / "x.parquet")
    assert footer.row_group(0).column(0).compression == "SNAPPY"
    assert pq.read_schema(tmp_path / "out" / "x.parquet").metadata[b"origin"] == b"log"
