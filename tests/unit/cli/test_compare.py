"""`tuneyard compare`: a table and the rows that differ for people, all of it for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.scoring.scored_by_hand import answer_all, request, write_rows

from tuneyard.cli import main

ROWS = 40


@pytest.fixture
def outputs(tmp_path: Path) -> list[str]:
    """Three score tasks: base is right in no row, tuned in every other one, both in all of them."""
    data = write_rows(tmp_path / "rows.jsonl", [{"prompt": f"q{i}\x1b[31m", "answer": f"a {i}"} for i in range(ROWS)])
    for name, right in (("base", 0), ("tuned", 2), ("best", 1)):
        answer_all(request(tmp_path, name, data), lambda row, right=right: f"a {row}" if right and row % right == 0 else "no")
    return [str(tmp_path / name) for name in ("base", "tuned", "best")]


def test_the_table_says_what_is_real_and_rows_follow(outputs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *outputs[:2]]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "tuned against base: 40 rows of both"
    assert lines[1].split() == ["metric", "base", "tuned", "difference", "95", "%", "interval", "verdict", "won", "equal", "lost"]
    figures = lines[2].split()
    assert figures[:4] == ["exact_match", "0", "0.5", "+0.500"]
    assert figures[-4:] == ["better", "20", "20", "0"]
    assert "tuned is better in row 0: exact_match 1.00 against 0" in lines
    assert not any("\x1b" in line for line in lines)


def test_a_row_that_is_worse_says_in_which_figures_it_is_better_and_rows_left_out_are_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", [{"prompt": "q", "answer": "a"}, {"answer": "no prompt"}])
    for name, said in (("base", "a"), ("tuned", "1")):
        answer_all(request(tmp_path, name, data, metrics=["exact_match", "json_valid", "rouge_l"]), lambda _, said=said: said)

    assert main(["compare", str(tmp_path / "base"), str(tmp_path / "tuned")]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "tuned against base: 1 of 2 rows of both; left out: 1 with an error in both"
    assert "tuned is worse in row 0: exact_match 0 against 1.00, rouge_l 0 against 1.00; better: json_valid 1.00 against 0" in lines


def test_others_are_compared_with_the_first(outputs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *outputs, "-o", "json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert [(each["task"], each["against"]) for each in found] == [("tuned", "base"), ("best", "base")]
    assert [each["figures"][0]["wins"] for each in found] == [20, 40]


def test_folders_of_the_same_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_rows(tmp_path / "rows.jsonl", [{"prompt": "q", "answer": "a"}])
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
        answer_all(request(tmp_path / run, "judge", data), lambda _: "a")

    assert main(["compare", str(tmp_path / "one" / "judge"), str(tmp_path / "two" / "judge" / "parts")]) == 2
    assert main(["compare", str(tmp_path / "one" / "judge"), str(tmp_path / "two" / "judge")]) == 0
    assert "two/judge against one/judge: 1 rows of both" in capsys.readouterr().out


def test_what_cannot_be_compared_is_refused(outputs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", outputs[0], outputs[0]]) == 2
    assert "the same output is named twice" in capsys.readouterr().err
    assert main(["compare", outputs[0]]) == 2
    assert main(["compare", outputs[0], "nowhere"]) == 2
    assert "nowhere holds no output of a score task" in capsys.readouterr().err
