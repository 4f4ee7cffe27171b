"""What happens in the simulated week of two Schedules, and what must stand in their histories at its end.

`europe` runs over the night on which clocks go forward in Amsterdam (28 March 2027), `sydney` over the night on which they go back in
Sydney (4 April 2027). Both are due at half past two.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tests.clusters.scheduled_week import Week, doubled

from tuneyard.api.schedule_status import ScheduledRun
from tuneyard.schedules import times_between
from tuneyard.schedules.view import ScheduleView

LINE = "30 2 * * *"
ZONES = {"europe": "Europe/Amsterdam", "sydney": "Australia/Sydney"}
BEGIN = datetime(2027, 3, 26, 12, tzinfo=UTC)
NIGHTS = times_between(LINE, ZONES["europe"], BEGIN, BEGIN + timedelta(days=10), 10)
SYDNEY = times_between(LINE, ZONES["sydney"], NIGHTS[6], NIGHTS[9] + timedelta(minutes=30), 10)
GOOD, BAD = 0.80, 0.70
_LATER = timedelta(minutes=10)
_REGRESSION = {"exact_match": {"worseBy": "2%"}}


@dataclass(frozen=True)
class Night:
    """A line of the table."""

    schedule: str
    due: datetime
    local: str
    kind: str
    verdict: str
    figure: float | None
    message: str


def tell(week: Week) -> None:
    """The week. Each line is one night of `europe`; `sydney` runs beside it at its end."""
    for name, zone in ZONES.items():
        week.put(name, cron=LINE, timeZone=zone, regression=_REGRESSION)
    week.resume("europe")
    for due in NIGHTS[:2]:  # the second is the night on which clocks go forward
        week.at(due + _LATER)
        week.settled("europe")
    week.ending = False  # the third goes on, so that the fourth is forbidden
    week.at(NIGHTS[2] + _LATER)
    week.at(NIGHTS[3] + _LATER)
    week.ending = True
    week.settled("europe")
    week.away_until(NIGHTS[6] + _LATER)  # over three due times
    week.settled("europe")
    week.resume("sydney")
    week.value = BAD
    week.at(NIGHTS[7] + _LATER)  # the planted regression
    week.settled("europe")
    week.value = GOOD
    dates = {"from": local_date(NIGHTS[4]), "to": local_date(NIGHTS[5]), "parallel": 2}
    week.change("europe", backfill=dates, concurrency="replace")
    week.settled("europe")
    week.ending = False
    week.at(NIGHTS[8] + _LATER)
    week.kept_open.add(week.run_of("europe", NIGHTS[8]))  # it hangs, and is replaced by the next
    week.ending = True
    week.settled("sydney")
    week.at(NIGHTS[9] + _LATER)
    week.kept_open.clear()
    for name in ZONES:
        week.settled(name)


EUROPE_RUNS = [
    *(
        ("scheduled", verdict)
        for verdict in ("good", "good", "good", "skipped", "missed", "missed", "good", "regressed", "cancelled", "good")
    ),
    *(("backfill", "good") for _ in range(2)),
]
"""(kind, verdict) of the runs of `europe` at the end, in the order of due times, then the backfill."""


def check(week: Week) -> None:
    """Raises AssertionError unless all has happened as `tell` wants it, and no run was lost or doubled."""
    europe, sydney = lines_of(week.view("europe")), lines_of(week.view("sydney"))
    reasons = week.clusters.hub.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()
    told = [(night.kind, night.verdict) for night in sorted(europe, key=lambda night: (night.kind != "scheduled", night.due))]
    assert told == EUROPE_RUNS, europe
    assert [night.due for night in europe if night.kind == "scheduled"] == NIGHTS
    assert europe[1].local == "Sun 28 Mar 03:30 +0200", "half past two does not exist on this night"
    assert [(night.due, night.verdict) for night in sydney] == [(due, "good") for due in SYDNEY]
    assert [night.local for night in sydney[1:]] == ["Sun 04 Apr 02:30 +1100", "Mon 05 Apr 02:30 +1000"], "half past two comes twice"
    assert {"Regressed", "Recovered", "RunMissed"} <= set(reasons)
    assert not doubled(week)


def tell_three_nights(week: Week) -> None:
    """From the second night on: clocks go forward, a run regresses, and one is missed before a good one."""
    week.put("europe", cron=LINE, timeZone=ZONES["europe"], regression=_REGRESSION)
    week.resume("europe")
    for due, value in ((NIGHTS[1], GOOD), (NIGHTS[2], BAD)):
        week.value = value
        week.at(due + _LATER)
        week.settled("europe")
    week.value = GOOD
    week.away_until(NIGHTS[4] + _LATER)
    week.settled("europe")


def lines_of(view: ScheduleView) -> list[Night]:
    """The runs of a Schedule, oldest first."""
    return [line_of(view, run) for run in sorted(view.status.runs, key=lambda run: (run.due, run.kind))]


def line_of(view: ScheduleView, run: ScheduledRun) -> Night:
    """A run of a Schedule."""
    due = datetime.fromisoformat(run.due)
    value = next((figure.value for figure in run.figures if figure.name == "exact_match"), None)
    return Night(view.name, due, f"{due.astimezone(ZoneInfo(view.zone)):%a %d %b %H:%M %z}", run.kind, run.verdict, value, run.message)


def local_date(moment: datetime) -> str:
    return moment.astimezone(ZoneInfo(ZONES["europe"])).date().isoformat()
