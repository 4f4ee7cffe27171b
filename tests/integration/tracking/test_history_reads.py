"""Reading and keeping run history on SQLite and PostgreSQL: pages, series, usage, retention."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.operators.test_history_rows import PLACE, START, attempt, jobspec, moment, status

from tuneyard.api import Phase, TaskStatus
from tuneyard.tracking import History
from tuneyard.tracking.hub_rows import JobRows
from tuneyard.tracking.past import By, JobFilter
from tuneyard_operators.history.rows import rows_of


@pytest.fixture
def history(url: str) -> History:
    return History.open(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/history.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres"))


def job(number: int, *, steps: Sequence[int] = (), team: str = "maps", ends: float = 60) -> JobRows:
    item = jobspec(name=f"job-{number}", uid=f"u-{number}", creationTimestamp=moment(number // 3))  # three at each moment
    item["spec"]["team"] = team
    made = rows_of(item, status(attempt(1, 0, ends), phase=Phase.SUCCEEDED, finished_at=moment(ends)), "hub-1")
    key = made.attempts[0]["id"]
    return replace(made, steps=tuple({"attempt_id": key, "step": step, "loss": 1.0} for step in steps))


def test_pages_have_every_job_once_though_others_arrive_meanwhile(history: History) -> None:
    history.record([job(number) for number in range(50)], START)
    found, after = [], ""
    while True:
        page = history.page(JobFilter(hub="hub-1"), 7, after)
        found += [each.name for each in page.jobs]
        history.record([job(100 + len(found))], START)  # newer than all
        after = page.after
        if not after:
            break

    assert sorted(found) == sorted(f"job-{number}" for number in range(50))
    assert len(page.jobs) == 1


def test_a_series_is_thinned_for_readers_and_after_a_week_for_good(history: History) -> None:
    history.record([job(1, steps=range(1, 1201)), job(2, steps=range(1, 11))], START)
    keys = {found.name: history.attempts(found.id)[0]["id"] for found in history.jobs()}
    shown = [row["step"] for row in history.series(keys["job-1"], 100)]
    assert (shown[0], shown[-1], len(shown)) == (1, 1200, 101)

    assert history.tidy(START + timedelta(days=2), thin_days=7, series_days=90) == 0
    while history.tidy(START + timedelta(days=9), thin_days=7, series_days=90):
        pass
    kept = [row["step"] for row in history.steps(keys["job-1"])]
    assert (kept[0], kept[-1]) == (1, 1200)
    assert 300 < len(kept) <= 501
    assert len(history.steps(keys["job-2"])) == 10

    while history.tidy(START + timedelta(days=99), thin_days=7, series_days=90):
        pass
    assert history.steps(keys["job-1"]) == history.steps(keys["job-2"]) == []
    assert len(history.jobs()) == 2


def test_nothing_is_removed_where_retention_is_off_or_a_machine_has_written(history: History) -> None:
    made = job(1, steps=range(1, 1201))
    history.record([replace(made, job={**made.job, "origin": "local"})], START)

    assert history.tidy(START + timedelta(days=999), thin_days=7, series_days=90) == 0
    assert history.tidy(START + timedelta(days=999), thin_days=0, series_days=0) == 0


def keep(history: History, days: float) -> int:
    """Retention until nothing is left to do. Returns how many attempts it has looked at."""
    looked_at = 0
    while now := history.tidy(START + timedelta(days=days), thin_days=7, series_days=90):
        looked_at += now
    return looked_at


def lengths(history: History) -> set[int]:
    return {len(history.steps(attempt["id"])) for job in history.jobs(1000) for attempt in history.attempts(job.id)}


def test_retention_looks_at_each_attempt_once_for_each_of_its_steps(history: History) -> None:
    short, long = ([job(number, steps=range(1, n)) for number in range(first, first + 60)] for n, first in ((5, 0), (700, 60)))
    history.record([*short, *long], START)

    assert keep(history, 9) == 120, "more long series than one call thins"
    assert lengths(history) == {4, 350}
    assert keep(history, 9) == keep(history, 10) == 0
    assert keep(history, 99) == 120
    assert lengths(history) == {0}
    assert keep(history, 999) == 0


def test_attempts_that_are_recorded_late_or_again_are_thinned_too(history: History) -> None:
    history.record([job(1, steps=range(1, 700), ends=600)], START)
    assert keep(history, 99) == 1
    late, again = job(2, steps=range(1, 700), ends=60), job(1, steps=range(1, 5), ends=600)
    history.record([late, again], START)
    assert keep(history, 9) == 2
    assert lengths(history) == {350, 4}
    assert keep(history, 99) == 2
    assert lengths(history) == {0}


def test_usage_by_team_is_that_of_the_attempts_in_any_period(history: History) -> None:
    chance = random.Random(3)
    ends = {number: chance.uniform(1, 100_000) for number in range(40)}
    history.record([job(number, team=f"team-{number % 3}", ends=end) for number, end in ends.items()], START)
    for _ in range(5):
        since = START + timedelta(minutes=chance.uniform(-100, 50_000))
        until = since + timedelta(minutes=chance.uniform(1, 90_000))
        rows = {row["team"]: row["gpu_hours"] for row in history.usage(since, until, ("team",))}
        for team in range(3):
            exact = sum(overlap_h(end, since, until) * 8 for number, end in ends.items() if number % 3 == team)
            assert rows.get(f"team-{team}", 0.0) == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("job-*", {"job-1", "job-12"}), ("job-1?", {"job-12"}), ("JOB-*", set()), ("[j]ob-*", set()), ("job_*", set()), ("!*", set())],
)
def test_a_pattern_of_names_is_case_sensitive_on_every_database(history: History, pattern: str, found: set[str]) -> None:
    history.record([job(1), job(12)], START)
    assert {each.name for each in history.page(JobFilter.asked(pattern)).jobs} == found


def asked(number: int, cost: float, ends: float, phase: Phase = Phase.SUCCEEDED) -> JobRows:
    """A job whose one task was scored by an endpoint: on a head, without a GPU."""
    place = PLACE.model_copy(update={"sku": "cpu", "gpus": 0, "pods": 0, "nodes": {}})
    told = status(attempt(1, 0, ends, task="judge", placement=place, phase=phase), phase=phase)
    told.tasks = [TaskStatus(name="judge", metrics={"rouge_l": 0.5, "cost": cost})]
    item = jobspec(name=f"asked-{number}", uid=f"a-{number}")
    item["spec"]["team"] = "maps"
    return rows_of(item, told, "hub-1")


def test_usage_has_what_endpoints_have_charged_in_the_month_of_the_end(history: History) -> None:
    """START is an hour before December."""
    jobs = [asked(1, 0.25, 30), asked(2, 0.5, 90), asked(3, 1.0, 91), asked(4, 7.0, 92, Phase.FAILED), job(5, ends=60)]
    history.record(jobs, START)

    def usage(*by: By) -> list[dict[str, Any]]:
        return history.usage(START - timedelta(days=9), START + timedelta(days=9), by)

    november, december = usage("month", "team")
    assert (november["month"], november["jobs"], november["endpoint_cost"]) == ("2025-11", 2, 0.25)
    assert november["gpu_hours"] == pytest.approx(8.0)
    assert (december["month"], december["jobs"], december["gpu_hours"], december["endpoint_cost"]) == ("2025-12", 2, 0.0, 1.5)
    by_sku = {row["sku"]: (row["cost"], row["endpoint_cost"]) for row in usage("sku")}
    assert by_sku == {"h100-80gb": (pytest.approx(20.0), 0.0), "cpu": (0.0, 1.75)}


def test_usage_has_what_endpoints_have_charged_for_attempts_that_have_failed(history: History) -> None:
    """The second attempt goes on from the parts of the first. The cost of the task is that of both, and no charge."""
    place = PLACE.model_copy(update={"sku": "cpu", "gpus": 0, "pods": 0, "nodes": {}})
    failed = attempt(1, 0, 30, task="judge", placement=place, phase=Phase.FAILED, charged=0.5)
    told = status(failed, attempt(2, 61, 90, task="judge", placement=place, charged=0.75), phase=Phase.SUCCEEDED)
    told.tasks = [TaskStatus(name="judge", metrics={"rouge_l": 0.5, "cost": 1.0})]
    again = status(attempt(1, 0, 30, task="judge", placement=place, charged=0.0), phase=Phase.SUCCEEDED)
    again.tasks = [TaskStatus(name="judge", metrics={"cost": 9.0})]
    items = [jobspec(name=f"asked-{number}", uid=f"a-{number}") for number in range(2)]
    for item in items:
        item["spec"]["tasks"] = [{"name": "judge", "score": {}}]
    history.record([rows_of(item, each, "hub-1") for item, each in zip(items, (told, again), strict=True)], START)

    november, december = history.usage(START - timedelta(days=9), START + timedelta(days=9), ("month",))

    assert (november["endpoint_cost"], december["endpoint_cost"]) == (0.5, 0.75)


def test_the_cost_of_engines_on_gpus_is_no_charge_of_an_endpoint(history: History) -> None:
    told = status(attempt(1, 0, 60, task="judge"), phase=Phase.SUCCEEDED)
    told.tasks = [TaskStatus(name="judge", metrics={"cost": 20.0})]
    history.record([rows_of(jobspec(), told, "hub-1")], START)

    (row,) = history.usage(START - timedelta(days=1), START + timedelta(days=1), ("team",))

    assert (row["gpu_hours"], row["cost"], row["endpoint_cost"]) == (pytest.approx(8.0), pytest.approx(20.0), 0.0)


def test_what_an_endpoint_of_embeddings_has_charged_counts_beside_gpus(history: History) -> None:
    told = status(attempt(1, 0, 60, task="judge"), phase=Phase.SUCCEEDED)
    told.tasks = [TaskStatus(name="judge", metrics={"cost": 25.0, "embedding_cost": 5.0})]
    history.record([rows_of(jobspec(), told, "hub-1")], START)

    (row,) = history.usage(START - timedelta(days=1), START + timedelta(days=1), ("team", "sku"))

    assert (row["jobs"], row["gpu_hours"], row["cost"], row["endpoint_cost"]) == (1, pytest.approx(8.0), pytest.approx(20.0), 5.0)


def overlap_h(end: float, since: datetime, until: datetime) -> float:
    ended = datetime.fromisoformat(moment(end)).astimezone(UTC)
    return max(0.0, (min(ended, until) - max(START, since)).total_seconds() / 3600)


def test_a_page_of_ten_thousand_jobs_is_answered_at_once(history: History) -> None:
    one = job(0)
    jobs = [copied(one, number) for number in range(10_000)]
    for begin in range(0, len(jobs), 2000):
        history.record(jobs[begin : begin + 2000], START)

    began = time.monotonic()
    page = history.page(JobFilter(hub="hub-1", namespace="maps"), 100)
    later = history.page(JobFilter(hub="hub-1", namespace="maps"), 100, page.after)
    print(f"{1000 * (time.monotonic() - began) / 2:.0f} ms a page")
    assert page.jobs[0].name == "job-9999"
    assert page.jobs[0].attempts == 1
    assert len({each.id for each in (*page.jobs, *later.jobs)}) == 200


def copied(one: JobRows, number: int) -> JobRows:
    """A job like `one`, and newer the higher its number."""
    key = f"{number:032}"
    job = {**one.job, "id": key, "name": f"job-{number}", "started_at": START + timedelta(seconds=number)}
    return JobRows(job, attempts=({**one.attempts[0], "id": key, "job_id": key},))
