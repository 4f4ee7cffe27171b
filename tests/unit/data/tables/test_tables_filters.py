"""A filter of a wide table gives what pyarrow's own gives in memory, however the rows are cut into row groups."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.feature_tables import rows_of

from tuneyard.api import BadInput
from tuneyard.data.tables import TableReader, open_table

NAN = float("nan")
FLOATS = st.sampled_from([5.0, 5.0, NAN, NAN, 1.0, 0.0, -0.0, math.inf, -2.5])
INTEGERS = st.sampled_from([5, 5, 1, 0, -3, 2**53])
LARGE = st.sampled_from([0, 5, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1])
COLUMNS = {"double": FLOATS, "float": FLOATS, "int64": INTEGERS, "uint64": LARGE}
ONE, SEVERAL = ("=", "==", "!=", "<", "<=", ">", ">="), ("in", "not in")


@st.composite
def predicates(draw: st.DrawFn) -> tuple[str, str, Any]:
    name = draw(st.sampled_from([*COLUMNS]))
    operator = draw(st.sampled_from([*ONE, *SEVERAL]))
    values = COLUMNS[name]
    return name, operator, draw(values if operator in ONE else st.lists(values | st.none(), min_size=1, max_size=3))


def of_its_type(name: str, operator: str, value: Any) -> tuple[str, str, Any]:
    """As pyarrow takes it: by itself it makes 64 signed bits of every whole number."""
    if name != "uint64":
        return name, operator, value
    return name, operator, pa.array(value, pa.uint64()) if operator in SEVERAL else pa.scalar(value, pa.uint64())


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.fixed_dictionaries({name: values | st.none() for name, values in COLUMNS.items()}), min_size=1, max_size=12),
    where=st.lists(st.lists(predicates(), min_size=1, max_size=2), min_size=1, max_size=2),
    group_rows=st.integers(1, 5),
)
def test_a_filter_is_pyarrows_own_in_memory(rows: list[dict[str, Any]], where: list[list[tuple[str, str, Any]]], group_rows: int) -> None:
    schema = pa.schema([("row", pa.int64()), *((name, pa.type_for_alias(name)) for name in COLUMNS)])
    table = pa.Table.from_pylist([{"row": number, **row} for number, row in enumerate(rows)], schema)
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(table, Path(folder) / "a.parquet", row_group_size=group_rows)
        found = rows_of(TableReader(open_table(folder), ["row"], where=where))
    wanted = table.filter(pq.filters_to_expression([[of_its_type(*one) for one in group] for group in where]))
    assert [row["row"] for row in found] == wanted.column("row").to_pylist()


def written(folder: Path, **columns: pa.Array) -> str:
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=2)
    return str(folder)


def test_statistics_keep_what_hides_beside_nan(tmp_path: Path) -> None:
    """Parquet says of {5, NaN} that its smallest and its largest value are 5."""
    table = open_table(written(tmp_path, x=pa.array([5.0, NAN, 5.0, 5.0, 1.0, NAN])))
    for where in (("x", "!=", 5.0), ("x", "not in", [5.0])):
        assert [str(row["x"]) for row in rows_of(TableReader(table, ["x"], where=[where]))] == ["nan", "1.0", "nan"]
    reader = TableReader(table, ["x"], where=[("x", "<", 5.0)])
    assert rows_of(reader) == [{"x": 1.0}]
    assert reader.traffic.requests == 1  # the other groups are left out by their statistics


@pytest.mark.parametrize("value", [-1, 2.5, 2**64, "5", [5]])
def test_a_value_that_no_unsigned_column_can_hold_is_refused_at_once(tmp_path: Path, value: Any) -> None:
    table = open_table(written(tmp_path, u=pa.array([2**63, 1], pa.uint64())))
    with pytest.raises(BadInput, match="is no value of this type") as refused:
        TableReader(table, ["u"], where=[("u", ">", value)])
    assert "whole numbers from 0 to 18,446,744,073,709,551,615" in refused.value.next_step


def test_a_value_that_pyarrow_cannot_take_is_refused_at_once(tmp_path: Path) -> None:
    table = open_table(written(tmp_path, i=pa.array([1, 2])))
    with pytest.raises(BadInput, match="the filter does not fit"):
        TableReader(table, ["i"], where=[("i", ">", 2**63)])
