"""Times of a cron line in its time zone, through both changes of clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.schedules import MONDAY, at_hour

from tuneyard.schedules import next_after, times_between
from tuneyard.schedules.times import day_bounds, last_until

ZONE = "Europe/Amsterdam"


def test_a_line_that_names_its_hour_runs_once_a_day_through_changes_of_clocks() -> None:
    assert next_after("0 2 * * *", ZONE, MONDAY) == at_hour(1)
    spring = datetime(2026, 3, 28, 12, tzinfo=UTC)  # the next night has no 02:30
    moved = next_after("30 2 * * *", ZONE, spring)
    assert moved == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    autumn = datetime(2026, 10, 24, 12, tzinfo=UTC)  # the next night has two
    first = next_after("30 2 * * *", ZONE, autumn)
    assert next_after("30 2 * * *", ZONE, first) - first == timedelta(hours=25)


def test_a_line_for_every_hour_goes_by_time_that_passes() -> None:
    moment, runs = datetime(2026, 10, 24, 23, 59, tzinfo=UTC), []
    for _ in range(4):
        moment = next_after("0 * * * *", ZONE, moment)
        runs.append(moment.hour)
    assert runs == [0, 1, 2, 3]


ZONES = st.sampled_from(["UTC", ZONE, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia"])


@settings(deadline=None, max_examples=20)
@given(
    zone=ZONES,
    hour=st.integers(0, 23),
    minute=st.sampled_from([0, 15, 30, 45]),
    begins=st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
)
def test_a_nightly_line_runs_once_on_each_date(zone: str, hour: int, minute: int, begins: datetime) -> None:
    begin = begins.replace(tzinfo=UTC)
    found = times_between(f"{minute} {hour} * * *", zone, begin, begin + timedelta(days=370), 1000)
    dates = [moment.astimezone(ZoneInfo(zone)).date() for moment in found]
    assert len(dates) == len(set(dates)) >= 369
    assert all(later - earlier == timedelta(days=1) for earlier, later in pairwise(dates))


@settings(deadline=None, max_examples=100)
@given(
    zone=ZONES,
    line=st.sampled_from(["*/20 * * * *", "0 3 * * 1", "30 1,2 * * *", "0 */5 * * *"]),
    minutes=st.integers(0, 700_000),
    microseconds=st.sampled_from([0, 1, -1, -500_000, 999_999]),
)
def test_the_last_time_is_the_one_before_the_next(zone: str, line: str, minutes: int, microseconds: int) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes, microseconds=microseconds)
    last, coming = last_until(line, zone, moment), next_after(line, zone, moment)
    assert last <= moment < coming
    assert next_after(line, zone, last - timedelta(seconds=1)) == last
    assert next_after(line, zone, last) == coming


def test_a_day_has_the_length_that_clocks_give_it() -> None:
    assert [
        (day_bounds(day, day, ZONE)[1] - day_bounds(day, day, ZONE)[0]).total_seconds() / 3600 for day in ("2026-03-29", "2026-10-25")
    ] == [23, 25]


def test_nothing_is_due_in_the_second_before_its_time() -> None:
    due = at_hour(26)
    assert last_until("0 2 * * *", "UTC", due - timedelta(microseconds=1)) == due - timedelta(days=1)
    assert last_until("0 2 * * *", "UTC", due) == due
