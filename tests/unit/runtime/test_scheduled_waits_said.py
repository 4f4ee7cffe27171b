"""What the log of `tuneyard schedule run` says while data are missing."""

from __future__ import annotations

from datetime import timedelta

from tests.builders.schedules import at_hour

from tuneyard.api.moments import written
from tuneyard.api.schedule_parts import WaitFor
from tuneyard.api.schedule_status import WaitingRun
from tuneyard.runtime.scheduled.waits_said import WaitsSaid

WAIT = WaitFor(path="data/{{ run.date }}.txt", timeout=3600.0)


def waiting(message: str = "") -> WaitingRun:
    return WaitingRun(name="nightly-1", due=written(at_hour(2)), since=written(at_hour(2)), path="data/2026-11-23.txt", message=message)


def test_a_wait_is_said_once_and_then_every_ten_minutes() -> None:
    said: list[str] = []
    waits = WaitsSaid(said.append)
    for half_minute in range(50):
        waits.say([waiting()], WAIT, "Europe/Amsterdam", at_hour(2) + timedelta(seconds=30 * half_minute))
    assert said == [
        "nightly-1 waits for data/2026-11-23.txt, until 2026-11-23T04:00:00+01:00",
        *["nightly-1 still waits for data/2026-11-23.txt, until 2026-11-23T04:00:00+01:00: not there yet"] * 2,
    ]


def test_a_wait_says_why_nobody_could_look() -> None:
    said: list[str] = []
    WaitsSaid(said.append).say([waiting("no keys")], WAIT, "UTC", at_hour(2))
    assert said == ["nightly-1 waits for data/2026-11-23.txt, until 2026-11-23T03:00:00+00:00: no keys"]


def test_a_run_that_waits_again_is_said_again() -> None:
    said: list[str] = []
    waits = WaitsSaid(said.append)
    for found in ([waiting()], [], [waiting()]):
        waits.say(found, WAIT, "UTC", at_hour(2))
    assert len(said) == 2
