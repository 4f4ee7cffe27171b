"""Workbooks: rows of the one sheet, or the named one; what formulas, merged cells and other sheets would hide is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.real_exports.workbooks import xlsx

from tuneyard.api import BadInput, ScoreData, load_jobspec
from tuneyard.cli import main
from tuneyard.data import ScoreRows, inspect, open_dataset
from tuneyard.data.records import BadRow, Record, read_records
from tuneyard.data.sources import locate

HEADER = ["prompt", "completion"]
ROWS = [["2+2?", 4], ["Half of 1?", 0.5], ["Who?", "I"]]


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def read(uri: str, **how: Any) -> list[Any]:
    return [row.values if isinstance(row, Record) else row for row in read_records(locate(uri, **how).files)]


def test_rows_have_numbers_as_they_are_seen(tmp_path: Path) -> None:
    found = inspect(write(tmp_path / "a.xlsx", xlsx({"Sheet": [HEADER, *ROWS]})))
    assert (found.file_type, found.format, found.samples) == ("excel", "prompt-completion", 3)
    assert [pieces[1].text for pieces in found.shown] == ["4", "0.5"]


def test_empty_rows_and_columns_are_left_out_and_blanks_around_names(tmp_path: Path) -> None:
    cells = [[" prompt ", None, "completion", None], ["q", None, "a", None], [None, None, None, None], ["r", None, None, "note"]]
    assert read(write(tmp_path / "a.xlsx", xlsx({"Sheet": cells}))) == [
        {"prompt": "q", "completion": "a", "column 4": None},
        {"prompt": "r", "completion": None, "column 4": "note"},
    ]


def test_a_hidden_sheet_does_not_count_and_may_be_named(tmp_path: Path) -> None:
    uri = write(tmp_path / "a.xlsx", xlsx({"Old": [HEADER, ["old", "old"]], "Rows": [HEADER, ["q", "a"]]}, hidden=["Old"]))
    assert read(uri) == [{"prompt": "q", "completion": "a"}]
    assert read(uri, sheet="Old") == [{"prompt": "old", "completion": "old"}]
    with pytest.raises(BadInput, match="no sheet New; sheets: Old, Rows"):
        read(uri, sheet="New")


@pytest.mark.parametrize(
    ("cells", "merged", "said"),
    [
        ([HEADER, ["q", "=A2"]], [], "B2 is a formula without a value"),
        ([HEADER, ["q", "#REF!"]], [], "a formula ended with #REF!"),
        ([HEADER, ["q", "a"], [None, "b"]], ["A2:A3"], "cells A2:A3 are merged, so that rows share a value"),
    ],
)
def test_rows_that_would_lose_something_are_bad_rows(cells: Any, merged: Any, said: str, tmp_path: Path) -> None:
    uri = write(tmp_path / "a.xlsx", xlsx({"Sheet": [*cells, ["last", "a"]]}, merged=merged))
    *bad, last = read(uri)
    assert last == {"prompt": "last", "completion": "a"}
    assert all(isinstance(row, BadRow) and row.reason == said for row in bad)
    assert bad[0].place == f"{uri}:row 2"


@pytest.mark.parametrize(
    ("sheets", "merged", "said"),
    [
        ({"A": [HEADER, *ROWS], "B": [HEADER, *ROWS]}, [], r"several sheets: A, B\n  next: set data\.sheet: A"),
        ({"A": []}, [], "no sheet with cells that is visible"),
        ({"A": [["Our questions"], HEADER, *ROWS]}, [], 'row 1 holds "Our questions", and must name the columns'),
        ({"A": [HEADER, *ROWS]}, ["A1:B1"], "row 1 has the merged cells A1:B1"),
        ({"A": [["q", "q"], *ROWS]}, [], "row 1: two columns have the same name"),
    ],
)
def test_workbooks_whose_rows_are_not_clear_are_refused(sheets: Any, merged: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said):
        read(write(tmp_path / "a.xlsx", xlsx(sheets, merged=merged)))


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"PK\x03\x04" + bytes(100), b"text", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99)]
)
def test_what_is_no_workbook_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"workbook|empty"):
        read(write(tmp_path / "a.xlsx", content))


def test_a_sheet_of_another_type_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"data\.sheet is Rows, and there is no workbook"):
        read(write(tmp_path / "a.csv", b"prompt,completion\nq,a\n"), sheet="Rows")


def test_a_job_names_the_sheet_of_its_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.xlsx", xlsx({"Notes": [["by", "Anna"]], "Rows": [HEADER, *[["q", "a"]] * 200]}))
    data = str(tmp_path / "a.xlsx")
    assert main(["init", "--data", data, "--sheet", "Rows", "--out", str(tmp_path / "job.yaml")]) == 0
    spec = load_jobspec(tmp_path / "job.yaml").spec.task("train").train
    assert spec is not None
    assert spec.data.sheet == "Rows"
    assert main(["validate", str(tmp_path / "job.yaml")]) == 0
    assert "warning" not in capsys.readouterr().err
    rows = ScoreRows.open(ScoreData(source=data, sheet="Rows", reference="completion"), cache_dir=tmp_path / "cache")
    assert (rows.count(), rows.row(0)["references"]) == (200, ("a",))
    with pytest.raises(BadInput, match=r"no column prompt \(data\.prompt\); columns found: by, Anna|the data set is empty"):
        ScoreRows.open(ScoreData(source=data, sheet="Notes"), cache_dir=tmp_path / "cache")
    assert len(open_dataset(data, sheet="Rows", cache_dir=tmp_path / "cache")) == 200
