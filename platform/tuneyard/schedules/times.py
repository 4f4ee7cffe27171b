"""Times of a cron line in a time zone, on days when clocks change too."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

_SECOND = timedelta(seconds=1)


def next_after(cron: str, zone: str, moment: datetime) -> datetime:
    """The first moment after `moment` that matches the cron line, in UTC.

    On days when clocks change, a line with named hours still runs once, even if its hour is skipped or repeated. A line that runs every
    hour, or every few minutes, follows elapsed time. Vixie's and Debian's cron do the same.
    """
    return _neighbour(cron, zone, moment, forward=True)


def last_until(cron: str, zone: str, moment: datetime) -> datetime:
    """The last moment that matches the cron line and is not after `moment`, in UTC. It is a whole second, as all moments of cron lines."""
    return _neighbour(cron, zone, moment.replace(microsecond=0) + _SECOND, forward=False)


def times_between(cron: str, zone: str, after: datetime, until: datetime, most: int) -> list[datetime]:
    """The first `most` moments of the cron line after `after`, up to and including `until`."""
    return list(islice(_times(cron, zone, after, until), most))


def day_bounds(first: str, last: str, zone: str) -> tuple[datetime, datetime]:
    """The moments just before the first date begins and just before the day after the last date begins, in a time zone."""
    place = ZoneInfo(zone)
    begins = datetime.combine(date.fromisoformat(first), datetime.min.time(), place)
    ends = datetime.combine(date.fromisoformat(last) + timedelta(days=1), datetime.min.time(), place)
    return begins.astimezone(UTC) - _SECOND, ends.astimezone(UTC) - _SECOND


def _times(cron: str, zone: str, after: datetime, until: datetime) -> Iterator[datetime]:
    moment = next_after(cron, zone, after)
    while moment <= until:
        yield moment
        moment = next_after(cron, zone, moment)


def _neighbour(cron: str, zone: str, moment: datetime, *, forward: bool) -> datetime:
    from croniter import croniter  # the client of a hub shows Schedules without it

    place = ZoneInfo(zone)
    local = moment.astimezone(place)
    by_the_hour = cron.split()[1].startswith("*")
    times = croniter(cron, local if by_the_hour else local.replace(tzinfo=None))
    while True:
        found: datetime = times.get_next(datetime) if forward else times.get_prev(datetime)
        found = (found if by_the_hour else found.replace(tzinfo=place)).astimezone(UTC)
        if (found > moment) if forward else (found < moment):
            return found
