"""What becomes due, what is started, skipped, replaced and missed, and what a status keeps."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.schedules import MONDAY, TEMPLATE, Nights, at_hour, nightly

from tuneyard.api import JobSpec, Phase
from tuneyard.api.moments import moment_of
from tuneyard.api.schedule_status import MOST_RUNS, MOST_SPANS, ScheduledRun, ScheduleStatus
from tuneyard.runtime.output import JobOutput
from tuneyard.schedules import Moment, Run, advance_schedule, run_name, run_spec


def test_nothing_runs_before_its_time() -> None:
    step = Nights(nightly()).look(at_hour(1))
    assert (step.start, step.status.next_run) == ((), "2026-11-23T02:00:00Z")


def test_a_run_starts_at_its_time_and_once() -> None:
    nights = Nights(nightly())
    (start,) = nights.look(at_hour(2)).start
    assert start.due == at_hour(2)
    assert nights.look(at_hour(2.01)).start == ()


def test_of_several_missed_runs_the_last_is_made_up_for() -> None:
    nights = Nights(nightly())
    (start,) = nights.look(at_hour(24 * 3 + 3)).start
    assert start.due == at_hour(24 * 3 + 2)
    assert nights.status.message.startswith("3 runs were missed")
    assert nights.verdicts == ["missed", "missed", "missed", ""]
    assert nights.news == ["RunMissed"]


def test_a_run_that_is_too_late_is_missed_and_said() -> None:
    nights = Nights(nightly(startingDeadline="10m"))
    assert nights.look(at_hour(3)).start == ()
    assert "was skipped: 3600 s late" in nights.status.message
    assert nights.verdicts == ["missed"]
    assert nights.look(at_hour(3.1)).start == ()


@pytest.mark.parametrize(("policy", "starts", "cancels"), [("forbid", 0, 0), ("allow", 1, 0), ("replace", 1, 1)])
def test_what_happens_while_the_last_run_goes_on(policy: str, starts: int, cancels: int) -> None:
    nights = Nights(nightly(concurrency=policy))
    nights.look(at_hour(2))
    step = nights.look(at_hour(26))
    assert (len(step.start), len(step.cancel)) == (starts, cancels)
    nights.look(at_hour(26.1))
    assert nights.verdicts == {"forbid": ["", "skipped"], "allow": ["", ""], "replace": ["cancelled", ""]}[policy]


def test_a_suspended_schedule_misses_nothing() -> None:
    nights = Nights(nightly(suspend=True))
    assert nights.look(at_hour(30)).start == ()
    nights.goal = nightly()
    assert nights.look(at_hour(49)).start == ()
    assert len(nights.look(at_hour(50)).start) == 1
    assert nights.verdicts == [""]


def test_a_pause_leaves_the_time_of_the_last_run() -> None:
    nights = Nights(nightly())
    nights.look(at_hour(2))
    due = nights.status.last_run
    nights.goal = nightly(suspend=True)
    nights.look(at_hour(10))
    nights.goal = nightly()
    nights.look(at_hour(12))
    assert due is not None
    assert nights.status.last_run == due


def test_a_suspended_schedule_writes_its_status_once() -> None:
    nights = Nights(nightly(suspend=True))
    nights.look(at_hour(1))
    before = nights.status
    nights.look(at_hour(30))
    assert nights.status == before


def test_an_edited_line_starts_no_run_of_the_time_before() -> None:
    nights = Nights(nightly())
    nights.look(at_hour(2))
    nights.goal = nightly(cron="0 9 * * *")
    assert nights.look(at_hour(10)).start == ()
    assert [start.due for start in nights.look(at_hour(33)).start] == []  # the first run goes on
    assert nights.verdicts == ["", "skipped"]


def test_an_edit_while_a_run_goes_leaves_the_run_alone() -> None:
    nights = Nights(nightly(concurrency="replace"))
    (start,) = nights.look(at_hour(2)).start
    nights.goal = nightly(cron="30 4 * * *", concurrency="replace")
    assert nights.look(at_hour(3)).cancel == ()
    nights.end(start.name)
    nights.look(at_hour(4))
    assert nights.verdicts == ["good"]


def test_a_clock_that_jumps_backwards_repeats_no_run() -> None:
    nights = Nights(nightly())
    for day in range(3):
        nights.night(day)
    for hour in range(20, 24 * 3 + 2):  # from the first evening on once more
        assert nights.look(at_hour(hour)).start == ()
    assert nights.look(at_hour(24 * 3 + 2)).start != ()
    assert len(nights.started) == len({start.name for start in nights.started}) == 4


@pytest.mark.parametrize(("cron", "every", "back"), [("* * * * *", 1, 140), ("*/5 * * * *", 5, 720)])
def test_a_clock_that_is_set_back_beyond_the_records_repeats_no_run(cron: str, every: int, back: int) -> None:
    """A hub keeps few finished jobs, and its status 100 records."""
    nights = Nights(nightly(cron=cron, concurrency="allow"))
    last = back + 60 * every
    for minute in [*range(every, last + 1, every), *range(last - back, last + 10 * every, every)]:
        for start in nights.look(MONDAY + timedelta(minutes=minute)).start:
            nights.end(start.name)
    assert len(nights.started) == len({start.name for start in nights.started}) == last // every + 9


def test_times_without_a_hub_and_set_clocks_leave_a_short_status() -> None:
    nights = Nights(nightly())
    for day in range(0, 90, 3):
        nights.night(day)
    assert len(nights.status.passed) == MOST_SPANS
    nights.night(88)
    assert (nights.status.passed[-1].first, nights.status.passed[-1].last) == ("2027-02-18T02:00:00Z", "2027-02-19T02:00:00Z")


def test_a_clock_that_was_a_year_ahead_stops_nothing_for_a_year() -> None:
    nights = Nights(nightly())
    nights.night(0)
    nights.night(365)
    assert nights.look(at_hour(24 + 1)).start == ()
    assert [start.due for start in nights.look(at_hour(24 + 2)).start] == [at_hour(26)]


def test_old_runs_are_removed() -> None:
    nights = Nights(nightly(history=2))
    for day in range(4):
        nights.night(day)
    assert len(nights.runs) == 2
    assert nights.verdicts == ["good"] * 4, "their records stay"


def test_a_status_keeps_the_last_runs_and_the_last_good_one() -> None:
    nights = Nights(nightly())
    nights.night(0)
    for day in range(1, MOST_RUNS + 20):
        nights.night(day, phase=Phase.FAILED)
    assert nights.verdicts.count("failed") == MOST_RUNS
    assert nights.verdicts[0] == "good"


def test_a_failed_run_that_is_corrected_is_judged_again() -> None:
    nights = Nights(nightly())
    assert nights.night(0, phase=Phase.FAILED) == "failed"
    (name,) = nights.runs
    nights.end(name, Phase.RUNNING)
    nights.look(at_hour(4))
    assert nights.verdicts == [""]
    nights.end(name)
    nights.look(at_hour(5))
    assert nights.verdicts == ["good"]


def test_a_run_that_somebody_deletes_is_lost_and_the_next_one_starts() -> None:
    nights = Nights(nightly())
    nights.look(at_hour(2))
    nights.runs.clear()
    nights.look(at_hour(3))
    assert nights.verdicts == ["lost"]
    assert len(nights.look(at_hour(26)).start) == 1


def test_what_an_older_hub_has_run_is_no_news() -> None:
    runs = [Run(run_name("nightly", at_hour(2)), at_hour(2), Phase.FAILED, at_hour(2))]
    status = ScheduleStatus(last_run="2026-11-23T02:00:00Z")
    step = advance_schedule("nightly", nightly(), status, MONDAY, runs, at_hour(5))
    assert ([run.verdict for run in step.status.runs], step.news) == (["failed"], ())


def test_a_run_has_the_same_name_for_every_hub() -> None:
    assert run_name("nightly", at_hour(2)) == run_name("nightly", at_hour(2))
    assert len(run_name("n" * 63, at_hour(2))) <= 63


def test_runs_of_schedules_with_long_names_stay_apart() -> None:
    start = "every-night-score-the-questions-of-the-support-desk-in"
    names = {run_name(f"{start}-{language}", at_hour(2)) for language in ("english", "dutch")}
    assert len(names) == 2
    assert all(len(name) <= 63 for name in names)


def test_each_run_writes_to_a_folder_of_its_own(tmp_path: Path) -> None:
    goal = nightly(template={"spec": {**TEMPLATE["spec"], "storage": {"output": f"{tmp_path}/nightly/", "scratch": "1Gi"}}})
    template = goal.template.spec.to_yaml_dict()
    moments = [Moment(run_name("nightly", at_hour(hour)), at_hour(hour), "UTC") for hour in (2, 26)]
    specs = [run_spec(template, moment) for moment in moments]
    assert [spec["storage"]["output"] for spec in specs] == [f"{tmp_path}/nightly/{moment.name}" for moment in moments]
    assert template["storage"]["output"] == f"{tmp_path}/nightly/", "the template stays as it is"
    for moment, spec in zip(moments, specs, strict=True):
        run = JobSpec.model_validate({"metadata": {"name": moment.name}, "spec": spec})
        JobOutput(spec["storage"]["output"]).claim(run, resume=True)
    older = {**TEMPLATE["spec"], "placement": {"clusters": ["east"], "spread": "allowed"}}
    assert run_spec(older, moments[0])["placement"] == {"clusters": ["east"]}, "an API server refuses what older versions stored"
    assert run_spec(TEMPLATE["spec"], moments[0]) == TEMPLATE["spec"], "without an output of its own the hub's is used"


ACTS = st.lists(
    st.tuples(
        st.integers(-120, 2000),  # minutes that pass; the clock may be set back
        st.sampled_from(["allow", "forbid", "replace"]),
        st.booleans(),  # suspended
        st.booleans(),  # the hub is killed before it stores the status
        st.booleans(),  # the oldest run ends
    ),
    min_size=1,
    max_size=40,
)


@settings(deadline=None, max_examples=40)
@given(acts=ACTS)
def test_whatever_happens_each_run_starts_at_most_once(acts: list[tuple[int, str, bool, bool, bool]]) -> None:
    nights, minutes = Nights(nightly(cron="*/7 * * * *", history=1000)), 0
    for passed, policy, suspend, killed, ends in acts:
        minutes = max(0, minutes + passed)
        nights.goal = nightly(cron="*/7 * * * *", concurrency=policy, suspend=suspend, history=1000)
        going = [run for run in nights.runs.values() if not run.phase.final]
        if ends and going:
            nights.end(going[0].name)
        step = nights.look(MONDAY + timedelta(minutes=minutes), killed=killed)
        assert not suspend or not step.start
        assert policy != "forbid" or len([run for run in nights.runs.values() if not run.phase.final]) <= max(1, len(going))
        assert all(start.due <= MONDAY + timedelta(minutes=minutes) for start in step.start)
    assert len(nights.started) == len({start.name for start in nights.started})


def test_a_status_of_hostile_texts_stays_readable() -> None:
    evil = "<script>alert(1)</script>\u202e" * 40
    status = ScheduleStatus(runs=[ScheduledRun(name="a", due="2026-11-23T02:00:00Z", verdict="good", message=evil[:500])])
    step = advance_schedule("nightly", nightly(), status, MONDAY, [], at_hour(1))
    assert step.status.runs == status.runs


def test_the_next_run_is_said_in_utc() -> None:
    step = Nights(nightly(timeZone="Europe/Amsterdam")).look(at_hour(0))
    assert moment_of(step.status.next_run or "") == at_hour(1)
