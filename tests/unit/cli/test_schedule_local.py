"""`tuneyard schedule … --local`: the words of commands about Schedules of this machine."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tuneyard.api import BadInput
from tuneyard.api.schedule_status import ScheduledRun, ScheduleStatus
from tuneyard.cli import main
from tuneyard.cli.schedule.command import _check, _lines, _regressed
from tuneyard.cli.schedule.follow import _moment
from tuneyard.cli.schedule.tables import row, run_row
from tuneyard.schedules.view import ScheduleView


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
        ({"compared_with": "a", "rows_not_compared": "its output is gone"}, "a, other rows: its output is gone"),
        ({}, None),
    ],
)
def test_a_history_says_what_a_run_was_compared_with(fields: dict[str, str], shown: str | None) -> None:
    run = ScheduledRun(name="b", due="2026-11-23T02:00:00Z", **fields)
    assert run_row(run)["compared"] == shown


def view(status: ScheduleStatus) -> ScheduleView:
    item = {"metadata": {"name": "nightly"}, "spec": {"cron": "0 2 * * *"}, "status": status.model_dump(mode="json", by_alias=True)}
    return ScheduleView.of(item)


def test_the_list_and_the_page_of_a_schedule_name_the_same_last_run() -> None:
    first = ScheduledRun(name="nightly-1", due="2026-11-23T02:00:00Z", verdict="good")
    second = ScheduledRun(name="nightly-2", due="2026-11-24T02:00:00Z", compared_with="nightly-1", rows_not_compared="9 rows are in both")
    under_way = view(ScheduleStatus(last_run=second.due, runs=[first, second]))
    ended = view(ScheduleStatus(last_run=second.due, runs=[first, second.model_copy(update={"verdict": "good"})]))
    for schedule, name in ((under_way, "nightly-1"), (ended, "nightly-2")):
        last = dict(_lines(schedule))["last run"]
        assert last == f"{row(schedule)['last_run']}, {name}: {row(schedule)['verdict']}"
    assert dict(_lines(ended))["compared"] == "nightly-2 with nightly-1, other rows: 9 rows are in both"
    assert dict(_lines(view(ScheduleStatus())))["last run"] == "none"


def test_a_backfill_of_too_many_runs_is_refused_with_the_limit() -> None:
    request = {"from": "2026-10-01", "to": "2026-11-25", "parallel": 1, "id": "x"}
    now = datetime(2026, 11, 26, tzinfo=UTC)
    _check(request, view(ScheduleStatus()), now)
    hourly = replace(view(ScheduleStatus()), cron="0 * * * *")
    with pytest.raises(BadInput, match="more than 1,000 runs from 2026-10-01 to 2026-11-25"):
        _check(request, hourly, now)


def test_a_regression_before_a_good_run_is_not_accepted() -> None:
    old = ScheduledRun(name="nightly-1", due="2026-11-23T02:00:00Z", verdict="regressed")
    good = ScheduledRun(name="nightly-2", due="2026-11-24T02:00:00Z", verdict="good")
    assert _regressed(view(ScheduleStatus(runs=[old])), None).name == "nightly-1"
    for name in (None, "nightly-1"):
        with pytest.raises(BadInput, match="nightly-2, which was due later, is good"):
            _regressed(view(ScheduleStatus(runs=[old, good])), name)
