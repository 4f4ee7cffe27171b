"""Runs that wait for their data, and runs on demand."""

from __future__ import annotations

from tests.builders.schedules import Nights, at_hour, nightly

from tuneyard.api import Phase
from tuneyard.schedules import Look

WAIT = {"path": "s3://logs/date={{ run.date }}/_SUCCESS", "timeout": "4h"}


def looked(nights: Nights, arrived: bool, why_not: str = "") -> dict[str, Look]:
    return {each.name: Look(arrived, why_not) for each in nights.status.waiting}


def test_a_run_starts_when_its_data_arrive() -> None:
    nights = Nights(nightly(waitFor=WAIT))
    assert nights.look(at_hour(2)).start == ()
    assert [each.path for each in nights.status.waiting] == ["s3://logs/date=2026-11-23/_SUCCESS"]
    assert nights.look(at_hour(3), looked(nights, False)).start == ()
    (start,) = nights.look(at_hour(4), looked(nights, True)).start
    assert (start.due, nights.status.waiting) == (at_hour(2), [])
    assert nights.condition("DataArrived") == "True"


def test_a_run_whose_data_never_come_is_missed_with_the_reason() -> None:
    nights = Nights(nightly(waitFor=WAIT, notify={"webhook": "https://example.com/x"}))
    nights.look(at_hour(2))
    nights.look(at_hour(6.1), looked(nights, False, "access denied"))
    (run,) = nights.status.runs
    assert (run.verdict, run.notice) == ("missed", "due")
    assert "access denied" in run.message
    assert (nights.news, nights.condition("DataArrived")) == (["RunMissed"], "False")


def test_the_timeout_counts_only_once_somebody_has_looked() -> None:
    """A hub that was away, or a runner that comes once an hour: the data may be there."""
    nights = Nights(nightly(waitFor=WAIT))
    nights.look(at_hour(2))
    assert nights.look(at_hour(9)).start == ()
    assert nights.verdicts == []
    assert len(nights.look(at_hour(9.1), looked(nights, True)).start) == 1


def test_several_nights_may_wait_and_forbid_starts_them_one_after_the_other() -> None:
    """A night that waits for its data and then for another run is not skipped: its date would be lost."""
    nights = Nights(nightly(waitFor={**WAIT, "timeout": "3d"}))
    nights.look(at_hour(2))
    nights.look(at_hour(26))
    assert len(nights.status.waiting) == 2
    for hour, due in ((27, 2), (28, 26)):
        (start,) = nights.look(at_hour(hour), looked(nights, True)).start
        assert start.due == at_hour(due)
        assert nights.look(at_hour(hour + 0.1), looked(nights, True)).start == ()
        assert all(each.message == f"{start.name} still runs, concurrency is forbid" for each in nights.status.waiting)
        nights.end(start.name, Phase.SUCCEEDED)
    assert nights.status.waiting == []
    assert len(nights.verdicts) == 2
    assert "skipped" not in nights.verdicts


def test_no_run_is_missed_without_a_look_however_many_wait() -> None:
    nights = Nights(nightly(cron="* * * * *", waitFor=WAIT, concurrency="allow"))
    for minute in range(1, 241):
        nights.look(at_hour(minute / 60))
    assert (nights.verdicts, len(nights.status.waiting)) == ([], 240)
    last = nights.status.waiting[-1].name
    assert [start.name for start in nights.look(at_hour(4.001), {**looked(nights, False), last: Look(True)}).start] == [last]


def test_of_more_runs_than_a_status_holds_the_oldest_is_missed_after_a_look() -> None:
    nights = Nights(nightly(cron="* * * * *", waitFor={**WAIT, "timeout": "30d"}))
    for minute in range(1, 302):
        nights.look(at_hour(minute / 60))
    assert (nights.verdicts, len(nights.status.waiting)) == ([], 301)
    oldest = nights.status.waiting[0].name
    nights.look(at_hour(301.1 / 60), looked(nights, False))
    (run,) = nights.status.runs
    assert (run.name, run.verdict, len(nights.status.waiting)) == (oldest, "missed", 300)
    assert "after 18006 s, and 300 later runs wait: s3://logs/date=2026-11-23/_SUCCESS did not exist" in run.message


def test_late_data_of_several_dates_start_the_oldest_run_first() -> None:
    """The files come together, and the last look for the older run was before."""
    nights = Nights(nightly(waitFor={**WAIT, "timeout": "3d"}))
    nights.look(at_hour(2))
    nights.look(at_hour(26))
    older, newer = (each.name for each in nights.status.waiting)
    assert nights.look(at_hour(27), {older: Look(False, at_s=10), newer: Look(True, at_s=20)}).start == ()
    (start,) = nights.look(at_hour(27.01), {older: Look(True, at_s=40), newer: Look(True, at_s=20)}).start
    assert start.name == older


def test_a_run_whose_data_are_there_waits_for_one_look_for_older_ones_and_no_longer() -> None:
    for again in (Look(False, at_s=40), Look(False, "access denied")):
        nights = Nights(nightly(waitFor={**WAIT, "timeout": "3d"}))
        nights.look(at_hour(2))
        nights.look(at_hour(26))
        older, newer = (each.name for each in nights.status.waiting)
        assert nights.look(at_hour(27), {newer: Look(True, at_s=20)}).start == ()
        (start,) = nights.look(at_hour(27.01), {older: again, newer: Look(True, at_s=20)}).start
        assert start.name == newer


def test_without_wait_for_a_run_that_waits_starts() -> None:
    nights = Nights(nightly(waitFor=WAIT))
    nights.look(at_hour(2))
    nights.goal = nightly()
    assert len(nights.look(at_hour(2.1)).start) == 1
    assert nights.condition("DataArrived") == ""


def test_a_schedule_that_is_paused_while_a_run_waits_does_not_start_it() -> None:
    nights = Nights(nightly(waitFor=WAIT))
    nights.look(at_hour(2))
    nights.goal = nightly(waitFor=WAIT, suspend=True)
    assert nights.look(at_hour(3), looked(nights, True)).start == ()
    assert (nights.verdicts, nights.status.waiting) == (["skipped"], [])


def test_the_data_of_a_past_date_are_looked_for_once() -> None:
    nights = Nights(nightly(waitFor=WAIT, backfill={"from": "2026-11-01", "to": "2026-11-02", "parallel": 2}))
    nights.look(at_hour(1))
    assert len(nights.status.waiting) == 2
    first, second = (each.name for each in nights.status.waiting)
    step = nights.look(at_hour(1.1), {first: Look(True), second: Look(False)})
    assert [start.name for start in step.start] == [first]
    assert nights.verdicts == ["missed", ""]


def test_a_backfill_is_done_once_and_again_under_another_id() -> None:
    asked = {"from": "2026-11-20", "to": "2026-12-24", "parallel": 10}
    nights = Nights(nightly(backfill=asked))
    assert [start.due.day for start in nights.look(at_hour(1)).start] == [20, 21, 22], "the future is left out"
    for start in nights.started:
        nights.end(start.name)
    assert nights.look(at_hour(1.1)).start == ()
    assert nights.status.backfill is not None
    assert nights.status.backfill.done
    nights.goal = nightly(backfill={**asked, "id": "again"})
    assert len(nights.look(at_hour(1.2)).start) == 3
    assert len(nights.started) == len({start.name for start in nights.started}) == 6


def test_a_backfill_of_a_day_when_clocks_change_has_its_runs() -> None:
    nights = Nights(
        nightly(cron="0 */6 * * *", timeZone="Europe/Amsterdam", backfill={"from": "2026-10-25", "to": "2026-10-25", "parallel": 9})
    )
    assert len(nights.look(at_hour(1)).start) == 4
    assert all(start.due.isoformat().startswith(("2026-10-24T22", "2026-10-25")) for start in nights.started)


def test_too_large_a_backfill_starts_nothing() -> None:
    nights = Nights(nightly(cron="* * * * *", backfill={"from": "2026-01-01", "to": "2026-11-01"}))
    assert [start.kind for start in nights.look(at_hour(0.001)).start] != ["backfill"]
    assert nights.status.backfill is not None
    assert (nights.status.backfill.started, nights.status.backfill.of, nights.status.backfill.done) == (0, 0, True)
    assert nights.status.backfill.message == "more than 1,000 runs from 2026-01-01 to 2026-11-01: give fewer dates"


def test_backfills_whose_ids_were_once_alike_both_run() -> None:
    """The first 16 bits of their hashes are the same."""
    asked = {"from": "2026-11-01", "to": "2026-11-02", "parallel": 9}
    nights = Nights(nightly(backfill={**asked, "id": "rerun-28"}))
    assert len(nights.look(at_hour(1)).start) == 2
    nights.goal = nightly(backfill={**asked, "id": "rerun-362"})
    assert len(nights.look(at_hour(1.1)).start) == 2
    assert len({start.name for start in nights.started}) == 4


def test_a_backfill_that_an_older_version_has_done_is_not_done_again() -> None:
    asked = {"from": "2026-11-01", "to": "2026-11-02", "parallel": 9}
    nights = Nights(nightly(backfill=asked))
    nights.look(at_hour(1))
    assert nights.status.backfill is not None
    older = nights.status.backfill.model_copy(update={"key": nights.status.backfill.key[:5]})
    nights.status = nights.status.model_copy(update={"backfill": older})
    assert nights.look(at_hour(1.1)).start == ()
