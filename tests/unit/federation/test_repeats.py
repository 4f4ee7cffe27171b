"""Runs of a Schedule predict its next one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders.hub_jobs import make_attempt

from tuneyard.api import JobStatus
from tuneyard.federation import Ask, Repeats, series_of, spent_by

SERIES = series_of("maps", "nightly", "judge")
ASK = Ask(job="maps/nightly-9", task="judge", team="maps", priority="normal", created=0.0, worlds=(4,), series=SERIES)


def learned(*gpu_seconds: float) -> Repeats:
    repeats = Repeats()
    for number, seconds in enumerate(gpu_seconds):
        assert repeats.learn((f"maps/nightly-{number}", "judge"), SERIES, seconds, float(number))
    return repeats


def test_the_median_of_the_latest_five_runs_is_expected_with_the_gpus_of_the_next() -> None:
    found = learned(9e9, 9e9, 9e9, 400, 400, 800, 1200, 1200).expected(ASK)
    assert (found.seconds, found.basis) == (200, "history")


@pytest.mark.parametrize(("basis", "expected"), [("plan", "history"), ("assumed", "history"), ("given", "given"), ("pace", "pace")])
def test_a_pace_and_a_guess_are_better(basis: str, expected: str) -> None:
    assert learned(400).expected(replace(ASK, basis=basis)).basis == expected  # type: ignore[arg-type]


def test_other_series_and_jobs_of_no_schedule_are_left_alone() -> None:
    repeats = learned(400)
    for series in ("", series_of("maps", "hourly", "judge"), series_of("ads", "nightly", "judge")):
        other = replace(ASK, series=series)
        assert repeats.expected(other) is other
    assert not repeats.learn(("maps/alone", "judge"), "", 400, 0.0)


def test_a_run_counts_once_and_a_deleted_one_no_more() -> None:
    repeats = learned(400)
    assert not repeats.learn(("maps/nightly-0", "judge"), SERIES, 9000, 5.0)
    repeats.forget(("maps/nightly-0", "judge"))
    repeats.forget(("maps/never-there", "judge"))
    assert repeats.expected(ASK) is ASK


def test_what_a_task_has_spent_is_in_seconds_of_one_reference_gpu() -> None:
    placement = {"cluster": "a", "sku": "a100-80gb", "workers": 4, "gpus": 4, "nodes": {"n": 4}}
    attempt = make_attempt(
        task="judge", placement=placement, startedAt="2026-11-21T12:00:00Z", endedAt="2026-11-21T12:10:00Z", placedAt="2026-11-21T11:00:00Z"
    )
    status = JobStatus.model_validate({"attempts": [attempt], "tasks": [{"name": "judge", "phase": "Succeeded"}]})
    [(task, spent, _)] = spent_by(status)
    assert (task, spent) == ("judge", 4 * 600)
    status.tasks[0].phase = status.tasks[0].phase.FAILED
    assert list(spent_by(status)) == []
