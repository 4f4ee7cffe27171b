"""`tuneyard data inspect` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuneyard.cli import main


def test_a_table_of_thousands_of_columns_shows_those_that_are_used_and_says_how_many_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {**{f"c{number}": number for number in range(3000)}, "prompt": "2 + 2?", "completion": "4"}
    (tmp_path / "wide.jsonl").write_text(json.dumps(row) + "\n")
    assert main(["data", "inspect", str(tmp_path / "wide.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert "… and 2,902 columns more" in shown
    assert len(shown.splitlines()) < 130
    assert all(f"{role} " in shown for role in ("prompt", "completion"))


def test_an_unknown_format_is_an_error_whose_next_step_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tickets.csv"
    path.write_text("title,remark\n" + "a printer,is on fire\n" * 3)
    assert main(["data", "inspect", str(path)]) == 2
    shown = capsys.readouterr()
    assert "unknown" in shown.out
    assert f"next: say which column plays which part: tuneyard data inspect {path} --columns prompt=…,completion=…" in shown.err
    assert main(["data", "inspect", str(path), "--columns", "prompt=title,completion=remark"]) == 0
    assert "prompt-completion" in capsys.readouterr().out


def test_some_rows_in_latin_1_come_with_the_command_that_converts_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("question,reply\n" + "sweet?,yes\n" * 9 + "süß?,ja\n", encoding="latin-1")
    assert main(["data", "inspect", str(path)]) == 0
    assert f"next convert it: iconv -f cp1252 -t utf-8 {path}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("file_type", ["json", "arrow"])
def test_every_type_of_the_documentation_may_be_named(tmp_path: Path, file_type: str, capsys: pytest.CaptureFixture[str]) -> None:
    import datasets

    rows = [{"prompt": "2 + 2?", "completion": "4"}]
    (tmp_path / "a.data").write_text(json.dumps(rows))
    if file_type == "arrow":
        datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
        next((tmp_path / "saved").glob("*.arrow")).rename(tmp_path / "a.data")
    assert main(["data", "inspect", str(tmp_path / "a.data"), "--file-type", file_type]) == 0
    assert f"(1 x {file_type}" in " ".join(capsys.readouterr().out.split())
    assert main(["data", "inspect", str(tmp_path / "a.data"), "--file-type", "word"]) == 2
    assert "use auto, parquet, jsonl, json, csv, text, arrow, excel or hf" in capsys.readouterr().err
