"""`tuneyard schedule … --local`: the words of commands about Schedules of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuneyard.api.schedule_status import ScheduledRun
from tuneyard.cli import main
from tuneyard.cli.schedule.follow import _moment
from tuneyard.cli.schedule.tables import run_row


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "list", "--local", str(tmp_path / "nope")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_folder_without_schedules_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "list", "--local", str(tmp_path)]) == 0
    assert "there are no Schedules here" in capsys.readouterr().out


def test_an_end_without_an_offset_is_utc() -> None:
    assert _moment("2126-12-24T18:00") == _moment("2126-12-24T18:00Z") == _moment("2126-12-24T19:00+01:00")


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"compared_with": "a", "rows_compared_with": "a"}, "a, same rows"),
        ({"compared_with": "a"}, "a, other rows"),
        ({}, None),
    ],
)
def test_a_history_says_what_a_run_was_compared_with(fields: dict[str, str], shown: str | None) -> None:
    run = ScheduledRun(name="b", due="2026-11-23T02:00:00Z", **fields)
    assert run_row(run)["compared"] == shown
