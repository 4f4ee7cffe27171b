"""Times of a cron line in a time zone, on days when clocks change too."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from tuneyard.api.cron import local_times

_SECOND, _NO_TIME = timedelta(seconds=1), timedelta(0)


def next_after(cron: str, zone: str, moment: datetime) -> datetime:
    """The first moment after `moment` that matches the cron line, in UTC.

    On days when clocks change, a line with named hours still runs once, even if its hour is skipped or repeated. A line whose hours begin
    with a star runs whenever the clock shows one of its times: twice in a repeated hour, and not in a skipped one. Vixie's and Debian's
    cron do the same.
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
    """The moment of the line that is nearest to `moment` in one direction, without `moment` itself.

    Local times know nothing of zones and become moments in `_moments_of`. A clock that was moved puts later moments at earlier local times.
    The search therefore begins before the local time of `moment`, and looks beyond its first find, by as much as the clock moves around
    each of them.
    """
    place = ZoneInfo(zone)
    follows_time = cron.split()[1].startswith("*")
    sign = 1 if forward else -1
    begin = moment.astimezone(place).replace(tzinfo=None) - sign * (_movement(moment, place) + _SECOND)
    best: datetime | None = None
    for local in local_times(cron, begin, forward=forward):
        if best is not None and sign * (local - best.astimezone(place).replace(tzinfo=None)) > _movement(best, place):
            return best
        for found in _moments_of(local, place, follows_time=follows_time):
            if sign * (found - moment) > _NO_TIME and (best is None or sign * (best - found) > _NO_TIME):
                best = found
    raise AssertionError("a cron line has no last time")


def _moments_of(local: datetime, place: ZoneInfo, *, follows_time: bool) -> list[datetime]:
    """The moments in UTC of a local time: two if clocks show it twice, and none if they skip it. A line that names its hours has exactly
    one: the first of two, and for a skipped time the moment at which it would have been.
    """
    moments = sorted({local.replace(tzinfo=place, fold=fold).astimezone(UTC) for fold in (0, 1)})
    if not follows_time:
        return [local.replace(tzinfo=place).astimezone(UTC)]
    return [moment for moment in moments if moment.astimezone(place).replace(tzinfo=None) == local]


def _movement(moment: datetime, place: ZoneInfo) -> timedelta:
    """By how much the clock moves within a day of `moment`. Islands that cross the date line move it by 24 hours."""
    offsets = [(moment + timedelta(hours=25 * days)).astimezone(place).utcoffset() or _NO_TIME for days in (-1, 0, 1)]
    return max(offsets) - min(offsets)
