"""Names of runs. They depend on the run alone, so that two hubs, or a hub after a kill, cannot create a run twice (as in CronJobs)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from hashlib import sha256

from tuneyard.kubernetes.names import shortened

_LONGEST = 48
_LONGEST_OF_REQUESTED = 38
_OLDER_DIGEST = 5
_DUE = re.compile(r"-([0-9]{1,9})$")


def run_name(schedule: str, moment: datetime) -> str:
    """The name of the run that is due at `moment`: the Schedule's with the minutes since 1970."""
    return f"{shortened(schedule, _LONGEST)}-{_minutes(moment)}"


def requested_name(schedule: str, moment: datetime, request: str) -> str:
    """The name of a run that a person has asked for. Each `request` gives the runs of a time other names, and other output folders."""
    return f"{shortened(schedule, _LONGEST_OF_REQUESTED)}-{_minutes(moment)}-{digest(request)}"


def digest(request: str) -> str:
    """Nine letters and digits that stand for a request. The first is a letter, so that no name ends like that of a scheduled run."""
    return "r" + sha256(request.encode()).hexdigest()[:8]


def is_digest(stored: str, request: str) -> bool:
    """Whether a stored digest is that of a request. Versions until November 2026 stored the first five characters."""
    return stored == (request[:_OLDER_DIGEST] if len(stored) == _OLDER_DIGEST else request)


def due_of(name: str) -> datetime | None:
    """The due time in the name of a scheduled run; None for other names."""
    found = _DUE.search(name)
    return datetime.fromtimestamp(60 * int(found[1]), UTC) if found is not None else None


def _minutes(moment: datetime) -> int:
    return int(moment.timestamp() // 60)
