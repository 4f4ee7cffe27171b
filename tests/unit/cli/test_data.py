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
