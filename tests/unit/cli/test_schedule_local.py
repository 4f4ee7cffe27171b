"""`tuneyard schedule … --local`: the words of commands about Schedules of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuneyard.cli import main
from tuneyard.cli.schedule.follow import _moment


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "list", "--local", str(tmp_path / "nope")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_folder_without_schedules_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "list", "--local", str(tmp_path)]) == 0
    assert "there are no Schedules here" in capsys.readouterr().out


def test_an_end_without_an_offset_is_utc() -> None:
    assert _moment("2126-12-24T18:00") == _moment("2126-12-24T18:00Z") == _moment("2126-12-24T19:00+01:00")
