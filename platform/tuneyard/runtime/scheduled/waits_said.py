"""Lines about runs that wait for their data: one when a run begins to wait, then one every ten minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from tuneyard.api.moments import moment_of
from tuneyard.api.schedule_parts import WaitFor
from tuneyard.api.schedule_status import WaitingRun

AGAIN = timedelta(minutes=10)


class WaitsSaid:
    """What was said about each waiting run, and when. `say`: takes a line for people."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: dict[str, datetime] = {}

    def say(self, waiting: Iterable[WaitingRun], wait_for: WaitFor | None, zone: str, now: datetime) -> None:
        """Say what is due about the runs that wait now. `zone`: the time zone of the Schedule."""
        wanted = {each.name: each for each in waiting}
        self._said = {name: at for name, at in self._said.items() if name in wanted}
        for name, each in wanted.items():
            last = self._said.get(name)
            if wait_for is None or (last is not None and timedelta() <= now - last < AGAIN):
                continue
            until = (moment_of(each.since) + timedelta(seconds=wait_for.timeout)).astimezone(ZoneInfo(zone))
            state = f": {each.message}" if each.message else "" if last is None else ": not there yet"
            self._say(f"{name} {'waits' if last is None else 'still waits'} for {each.path}, until {until.isoformat()}{state}")
            self._said[name] = now
