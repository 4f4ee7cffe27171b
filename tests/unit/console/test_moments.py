"""Moments on pages, in the time zone of the machine, on the days on which its clocks change."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tuneyard.console.words import when
from tuneyard.schedules import times_between


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def shown(first: datetime, now: datetime) -> list[str]:
    """The runs of three hours, every thirty minutes."""
    due = times_between("0,30 * * * *", "Europe/Berlin", first - timedelta(minutes=1), first + timedelta(minutes=170), 9)
    return [re.sub("<[^>]*>", "", str(when(each, now))) for each in due]


def test_a_time_that_clocks_show_twice_has_its_offset() -> None:
    begins = datetime(2026, 10, 24, 23, 30, tzinfo=UTC)
    twice = ["02:00+02:00", "02:30+02:00", "02:00+01:00", "02:30+01:00"]
    assert shown(begins, begins) == ["01:30", *twice, "03:00"]
    assert shown(begins, begins + timedelta(days=9))[1] == "Oct 25, 02:00+02:00"


def test_no_run_is_shown_in_the_hour_that_is_left_out() -> None:
    begins = datetime(2026, 3, 29, 0, 0, tzinfo=UTC)
    assert shown(begins, begins) == ["01:00", "01:30", "03:00", "03:30", "04:00", "04:30"]
