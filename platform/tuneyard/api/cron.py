"""Local times of a cron line, by croniter, which knows nothing of zones here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

_ONE_VALUE = re.compile(r"\b(\w+)-\1\b(/[0-9]+)?")
"""A range of one value. croniter 7.0.0 reads 9-9 as every hour."""


def local_times(cron: str, begin: datetime, *, forward: bool = True) -> Iterator[datetime]:
    """Times of the line after `begin`, or before it, in order. Raises ValueError for a line that names no date of the next 50 years.

    A day and a weekday that are both restricted are alternatives. If one of them begins with a star, as in `*/2`, both must hold. Vixie's
    cron does this (`implement_cron_bug`).
    """
    from croniter import croniter  # the client of a hub shows Schedules without it

    times = croniter(_ONE_VALUE.sub(r"\1", cron), begin, implement_cron_bug=True)
    while True:
        yield times.get_next(datetime) if forward else times.get_prev(datetime)
