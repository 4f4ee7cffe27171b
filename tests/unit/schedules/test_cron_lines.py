"""Times of cron lines beside all minutes of a week in which clocks change, tried one by one."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from tuneyard.schedules import next_after
from tuneyard.schedules.times import last_until

ZONES = (
    *("UTC", "Europe/Vienna", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia", "Africa/Casablanca"),
    *("America/Sao_Paulo", "Asia/Tehran", "Asia/Gaza", "Antarctica/Troll", "America/St_Johns", "Pacific/Chatham", "Africa/Cairo"),
    *("America/Santiago", "Europe/Dublin", "Asia/Beirut", "America/Havana", "Pacific/Kwajalein", "Asia/Amman", "Europe/London"),
    *("America/Los_Angeles", "America/Sao_Paulo", "Asia/Jerusalem", "Europe/Chisinau", "America/Asuncion", "Pacific/Norfolk"),
    *("Australia/Sydney", "Pacific/Auckland", "America/Godthab", "Europe/Istanbul", "Asia/Tokyo", "Asia/Kathmandu", "Africa/Tunis"),
    *("America/Caracas", "America/Scoresbysund", "Atlantic/Azores", "Europe/Moscow", "Asia/Pyongyang", "America/Mexico_City"),
)
DAY, MINUTE, SECOND = timedelta(days=1), timedelta(minutes=1), timedelta(seconds=1)
YEARS = (2011, 2016, 2024, 2026, 2027)


def values(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        body, _, step = part.partition("/")
        if body == "*":
            row = list(range(low, high + 1))
        elif "-" in body:
            first, last = map(int, body.split("-"))
            row = list(range(first, last + 1)) if first <= last else [*range(first, high + 1), *range(low, last + 1)]
        else:
            row = list(range(int(body), high + 1)) if step else [int(body)]
        found |= set(row[:: int(step or 1)])
    return found


def every_time(line: str, zone: str, begin: datetime, end: datetime) -> list[datetime]:
    """The moments from `begin` to `end` that the line names, by trying each minute."""
    minute, hour, day, month, weekday = line.split()
    minutes, hours, days, months = values(minute, 0, 59), values(hour, 0, 23), values(day, 1, 31), values(month, 1, 12)
    weekdays = {each % 7 for each in values(weekday, 0, 6)}
    both = day.startswith("*") or weekday.startswith("*")

    def is_named(local: datetime) -> bool:
        of_day, of_week = local.day in days, local.isoweekday() % 7 in weekdays
        right_date = (of_day and of_week) if both else (of_day or of_week)
        return local.minute in minutes and local.hour in hours and local.month in months and right_date

    place, found = ZoneInfo(zone), set()
    if hour.startswith("*"):  # each minute that passes
        for count in range(int((end - begin) / MINUTE) + 1):
            moment = begin + count * MINUTE
            if is_named(moment.astimezone(place).replace(tzinfo=None)):
                found.add(moment)
    else:  # each minute that a clock shows which nobody moves
        local = begin.astimezone(place).replace(tzinfo=None, second=0) - 2 * DAY
        for count in range(int((end - begin + 4 * DAY) / MINUTE) + 1):
            if is_named(local + count * MINUTE):
                found.add((local + count * MINUTE).replace(tzinfo=place).astimezone(UTC))
    return sorted(moment for moment in found if begin <= moment <= end)


def drawn_line(draw: random.Random) -> str:
    def field(low: int, high: int, *usual: str) -> str:
        one, other = sorted((draw.randint(low, high), draw.randint(low, high)))
        ranges = (f"{one}-{other}", f"{one}-{other}/2", f"{one}-{one}", f"{other}-{one}")
        return draw.choice([*usual, *ranges, "*", f"*/{draw.choice([2, 3, 5, 7, 15])}", str(one), f"{one}/4", f"{one},{other}"])

    return " ".join((field(0, 59, "0", "30"), field(0, 23), field(1, 28, "*", "*/2"), field(1, 12, "*", "*", "*"), field(0, 6, "*", "1")))


def change_of(zone: str, draw: random.Random) -> datetime:
    """A midnight two days before the clocks of a zone change, or any midnight where they do not change in that year."""
    begin = datetime(draw.choice(YEARS), 1, 1, tzinfo=UTC)
    offsets = [(begin + n * DAY).astimezone(ZoneInfo(zone)).utcoffset() for n in range(365)]
    changes = [n for n, (one, other) in enumerate(pairwise(offsets)) if one != other]
    return begin + DAY * ((draw.choice(changes) if changes else draw.randint(3, 300)) - 2)


def check(line: str, zone: str, begin: datetime, draw: random.Random) -> None:
    end = begin + 5 * DAY
    wanted = every_time(line, zone, begin, end)
    found, moment = [], begin - SECOND
    while (moment := next_after(line, zone, moment)) <= end:
        found.append(moment)
        if len(found) > len(wanted):
            break
    assert found == wanted, (line, zone, begin)
    for _ in range(5):
        instant = begin + SECOND * draw.randint(0, 5 * 86_400)
        before, after = [m for m in wanted if m <= instant], [m for m in wanted if m > instant]
        if before:
            assert last_until(line, zone, instant) == before[-1], (line, zone, instant)
        if after:
            assert next_after(line, zone, instant) == after[0], (line, zone, instant)


@pytest.mark.parametrize(
    ("line", "zone", "year"),
    [
        ("30 */2 * * *", "Europe/Vienna", 2026),  # 02:30 does not exist on 29 March
        ("30 2 * * *", "Europe/Vienna", 2026),
        ("45 2 * * *", "Australia/Lord_Howe", 2026),  # half an hour
        ("0 9-9 * * *", "America/Havana", 2026),
        ("0 2 */2 * 1", "UTC", 2026),
        ("15 0 30 * *", "Pacific/Apia", 2011),  # 30 December 2011 was left out
    ],
)
def test_a_line_runs_at_the_times_that_it_names(line: str, zone: str, year: int) -> None:
    draw = random.Random(0)
    begin = datetime(year, 1, 1, tzinfo=UTC)
    offsets = [(begin + n * DAY).astimezone(ZoneInfo(zone)).utcoffset() for n in range(365)]
    for n in [n for n, (one, other) in enumerate(pairwise(offsets)) if one != other] or [40]:
        check(line, zone, begin + (n - 2) * DAY, draw)


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 210))])
def test_lines_drawn_at_random_run_at_the_times_that_they_name(seed: int) -> None:
    """The long seeds repeat the first ten with other lines, zones and years."""
    draw = random.Random(seed)
    zone = ZONES[seed % len(ZONES)]
    check(drawn_line(draw), zone, change_of(zone, draw), draw)
