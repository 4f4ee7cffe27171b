"""When schedules run: in their own time zone, once, and what becomes of runs that were missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.api import JobSpec, Phase
from tuneyard.api.schedule import ScheduleGoal, ScheduleStatus
from tuneyard.runtime.output import JobOutput
from tuneyard_operators.hub.cron import Run, ScheduleStep, advance_schedule, next_after, run_name, run_spec

MONDAY = datetime(2026, 11, 23, tzinfo=UTC)
TEMPLATE: dict[str, dict[str, Any]] = {"spec": {"tasks": [{"name": "score", "process": {"command": ["true"]}}]}}


def nightly(**changes: Any) -> ScheduleGoal:
    return ScheduleGoal.model_validate({"cron": "0 2 * * *", "template": TEMPLATE, **changes})


def look(goal: ScheduleGoal, now: datetime, *runs: Run, last_run: str | None = None, created: datetime = MONDAY) -> ScheduleStep:
    return advance_schedule("nightly", goal, ScheduleStatus(last_run=last_run), created, runs, now)


def at_hour(hours: float) -> datetime:
    return MONDAY + timedelta(hours=hours)


def test_nothing_runs_before_its_time() -> None:
    step = look(nightly(), at_hour(1))
    assert (step.start, step.status.next_run) == (None, "2026-11-23T02:00:00Z")


def test_a_run_starts_at_its_time_and_once() -> None:
    step = look(nightly(), at_hour(2))
    assert step.start == at_hour(2)
    assert look(nightly(), at_hour(2.01), last_run=step.status.last_run).start is None


def test_a_line_that_names_its_hour_runs_once_a_day_through_changes_of_clocks() -> None:
    assert next_after("0 2 * * *", "Europe/Amsterdam", MONDAY) == at_hour(1)
    spring = datetime(2026, 3, 28, 12, tzinfo=UTC)  # the next night has no 02:30
    moved = next_after("30 2 * * *", "Europe/Amsterdam", spring)
    assert moved == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    autumn = datetime(2026, 10, 24, 12, tzinfo=UTC)  # the next night has two
    first = next_after("30 2 * * *", "Europe/Amsterdam", autumn)
    assert next_after("30 2 * * *", "Europe/Amsterdam", first) - first == timedelta(hours=25)


def test_a_line_for_every_hour_goes_by_time_that_passes() -> None:
    moment, runs = datetime(2026, 10, 24, 23, 59, tzinfo=UTC), []
    for _ in range(4):
        moment = next_after("0 * * * *", "Europe/Amsterdam", moment)
        runs.append(moment.hour)
    assert runs == [0, 1, 2, 3]


def test_of_several_missed_runs_the_last_is_made_up_for() -> None:
    step = look(nightly(), at_hour(24 * 4 + 3))
    assert step.start == at_hour(24 * 4 + 2)
    assert step.status.message.startswith("4 runs were missed")


def test_a_run_that_is_too_late_is_skipped_and_said() -> None:
    step = look(nightly(startingDeadline="10m"), at_hour(3))
    assert (step.start, "was skipped: 3600 s late" in step.status.message) == (None, True)
    assert look(nightly(startingDeadline="10m"), at_hour(3.1), last_run=step.status.last_run).status.message == ""


@pytest.mark.parametrize(("policy", "starts", "cancels"), [("forbid", False, ()), ("allow", True, ()), ("replace", True, ("old",))])
def test_what_happens_while_the_last_run_goes_on(policy: str, starts: bool, cancels: tuple[str, ...]) -> None:
    step = look(nightly(concurrency=policy), at_hour(2), Run("old", MONDAY, Phase.RUNNING))
    assert (step.start is not None, step.cancel) == (starts, cancels)


def test_suspended_schedules_miss_nothing() -> None:
    held = look(nightly(suspend=True), at_hour(30))
    assert held.start is None
    assert look(nightly(), at_hour(31), last_run=held.status.last_run).start is None


def test_old_runs_are_removed() -> None:
    runs = [Run(f"run-{n}", at_hour(n), Phase.SUCCEEDED) for n in range(5)]
    assert look(nightly(history=2), at_hour(1), *runs).delete == ("run-2", "run-1", "run-0")


def test_a_run_has_the_same_name_for_every_hub() -> None:
    assert run_name("nightly", at_hour(2)) == run_name("nightly", at_hour(2))
    assert len(run_name("n" * 63, at_hour(2))) <= 63


def test_each_run_writes_to_a_folder_of_its_own(tmp_path: Path) -> None:
    goal = nightly(template={"spec": {**TEMPLATE["spec"], "storage": {"output": f"{tmp_path}/nightly/", "scratch": "1Gi"}}})
    template = goal.template.spec.to_yaml_dict()
    names = [run_name("nightly", at_hour(hour)) for hour in (2, 26)]
    specs = [run_spec(template, name) for name in names]
    assert [spec["storage"]["output"] for spec in specs] == [f"{tmp_path}/nightly/{name}" for name in names]
    assert template["storage"]["output"] == f"{tmp_path}/nightly/", "the template stays as it is"
    for name, spec in zip(names, specs, strict=True):
        run = JobSpec.model_validate({"metadata": {"name": name}, "spec": spec})
        JobOutput(spec["storage"]["output"]).claim(run, resume=True)
    older = {**TEMPLATE["spec"], "placement": {"clusters": ["east"], "spread": "allowed"}}
    assert run_spec(older, names[0])["placement"] == {"clusters": ["east"]}, "an API server refuses what older versions stored"
    assert run_spec(TEMPLATE["spec"], names[0]) == TEMPLATE["spec"], "without an output of its own the hub's is used"


@settings(deadline=None, max_examples=50)
@given(minutes=st.lists(st.integers(0, 3000), min_size=1, max_size=40))
def test_however_often_it_is_looked_at_each_run_starts_at_most_once(minutes: list[int]) -> None:
    goal, status, started = nightly(cron="*/7 * * * *"), ScheduleStatus(), []
    for minute in sorted(minutes):
        step = advance_schedule("s", goal, status, MONDAY, (), MONDAY + timedelta(minutes=minute))
        status = step.status
        started += [step.start] if step.start else []
    assert started == sorted(set(started))


def test_runs_of_schedules_with_long_names_stay_apart() -> None:
    start = "every-night-score-the-questions-of-the-support-desk-in"
    moment = datetime(2026, 11, 26, 2, 0, tzinfo=UTC)
    names = {run_name(f"{start}-{language}", moment) for language in ("english", "dutch")}
    assert len(names) == 2
    assert all(len(name) <= 63 for name in names)
