"""How a job on the hub is shown: as a row, as a page, as figures."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.builders.hub_jobs import make_attempt, make_failed_attempt, make_hub_job, make_progress, make_running

from tuneyard.api import Progress, TaskStatus
from tuneyard.cli.clusters import rows as cluster_rows
from tuneyard.cli.jobs.figures import bar, done_words
from tuneyard.cli.jobs.page import page
from tuneyard.cli.jobs.table import COLUMNS, facts, row, summary
from tuneyard.cli.output import table_lines
from tuneyard.cluster.hub_cluster import hub_cluster
from tuneyard.tracking import task_of_status
from tuneyard.tracking.progress.words import age

NOW = datetime(2026, 11, 21, 12, 5, tzinfo=UTC)
ASLEEP = {"number": 1, "task": "serve", "token": 1, "phase": "Preempted", "asleepAt": 4}

RUNNING_PAGE = """\
maps/support-bot  Running on gcp-h100, 16 x h100-80gb on 2 nodes, 5m old
train runs on gcp-h100
██████▋·············  step 40/120 33%  loss 1.832  52,300 tokens/s  MFU 41.2%  ETA 1:12:00

task   kind   phase    after  progress         figures
train  train  Running  -      step 40/120 33%  loss 1.832  52,300 tokens/s  MFU 41.2%  ETA 1:12:00
judge  score  Pending  train  -                -

number  task   phase              cluster   sku        gpus  resumed from  last step  checkpoint  took
     1  train  Failed (NodeLost)  dca-a100  a100-80gb    16             -         20          20  1:40
     2  train  Running            gcp-h100  h100-80gb    16            20         40          40  5:00

attempt 1 of train: NodeLost on node n7: rank 3 stopped answering
  next: nothing: it goes on elsewhere
    | step 19 loss 2.10
    | step 20 loss 2.04

condition  status  since  reason
Accepted   True    5m     Valid

output    s3://models/support-bot
usage     3.20 GPU hours, cost 12.40

logs: tuneyard logs support-bot -n maps -f"""


def test_the_page_of_a_running_job() -> None:
    assert page(make_hub_job(make_running()), NOW) == RUNNING_PAGE


def test_the_page_of_a_job_that_nobody_has_looked_at() -> None:
    shown = page(make_hub_job(), NOW)
    assert shown.splitlines() == [
        "maps/support-bot  Pending, 5m old",
        "",
        "task   kind   phase    after",
        "train  train  Pending  -",
        "judge  score  Pending  train",
    ]


def test_the_page_of_a_failed_job_ends_with_what_to_do() -> None:
    failed = {**make_failed_attempt(1), "failure": "UserError", "message": "no such file chats.jsonl", "nextStep": "correct data.source"}
    shown = page(make_hub_job({"phase": "Failed", "message": "train failed: UserError", "attempts": [failed]}), NOW)
    assert "attempt 1 of train: UserError on node n7: no such file chats.jsonl\n  next: correct data.source\n" in shown
    assert "ETA" not in shown


def test_a_job_that_waits_says_why() -> None:
    shown = page(make_hub_job({"phase": "Queued", "message": "dca-a100: 3 of 4 nodes are free"}), NOW)
    assert shown.splitlines()[:2] == ["maps/support-bot  Queued, 5m old", "dca-a100: 3 of 4 nodes are free"]


def test_a_job_that_waits_says_when_it_is_predicted_to_start() -> None:
    shown = page(make_hub_job({"phase": "Queued", "message": "no room", "expectedStart": "2026-11-21T12:35:00Z"}), NOW)
    assert shown.splitlines()[2] == "expected start: about 2026-11-21 12:35 UTC, in 30m"


def test_a_job_that_waits_for_its_next_attempt_has_no_eta() -> None:
    status = make_running() | {"phase": "Queued", "attempts": [make_failed_attempt(1)]}
    status["tasks"][0]["phase"] = "Queued"
    assert row(make_hub_job(make_running()), NOW)["ETA"] == "1:12:00"
    assert row(make_hub_job(status), NOW)["ETA"] is None
    assert "ETA" not in page(make_hub_job(status), NOW)


def test_an_attempt_that_starts_tells_no_progress_of_the_one_before() -> None:
    status = make_running()
    status["tasks"][0]["phase"] = "Starting"
    job = make_hub_job(status)
    assert (row(job, NOW)["progress"], row(job, NOW)["loss"], row(job, NOW)["ETA"]) == (None, None, None)
    status["tasks"][0]["progress"] = {"summary": "loading the model"}
    assert row(make_hub_job(status), NOW)["progress"] == "loading the model"


def test_a_ranker_tells_its_rows_per_second() -> None:
    status = make_running()
    status["tasks"][0]["progress"] = make_progress(rowsPerS=410.0) | {"tokensPerS": None}
    assert "loss 1.832  410 rows/s  MFU 41.2%" in page(make_hub_job(status), NOW)


def test_rows_of_a_table() -> None:
    lines = table_lines(COLUMNS, [row(make_hub_job(make_running()), NOW), row(make_hub_job(name="other"), NOW)])
    assert lines[0].split() == ["name", "phase", "cluster", "sku", "gpus", "progress", "loss", "MFU", "ETA", "age", "message"]
    assert lines[1].split()[:7] == ["support-bot", "Running", "gcp-h100", "h100-80gb", "16", "step", "40/120"]
    assert lines[2].split() == ["other", "Pending", "-", "-", "-", "-", "-", "-", "-", "5m", "-"] or lines[2].split()[-2:] == ["-", "5m"]


def test_a_bar_is_drawn_for_people_only() -> None:
    job = make_hub_job(make_running())
    assert row(job, NOW)["progress"] == "step 40/120 33%"
    assert row(job, NOW, bars=True)["progress"] == "███▍······ step 40/120 33%"


def test_facts_for_programs_are_numbers() -> None:
    job = make_hub_job(make_running())
    assert summary(job, NOW)["mfu"] == 0.412
    assert summary(job, NOW)["age_s"] == 300
    told = facts(job, NOW)
    assert told["attempts"][0]["failure"] == "NodeLost"
    assert told["output"] == "s3://models/support-bot"


@pytest.mark.parametrize(
    ("status", "extra", "expected"),
    [
        (None, {}, "Pending"),
        ({"phase": "Running"}, {"cancelled": True}, "Cancelling"),
        ({"phase": "Cancelled"}, {"cancelled": True}, "Cancelled"),
        ({"phase": "Running"}, {"deleting": True}, "Deleting"),
        ({"phase": "Queued", "attempts": [ASLEEP]}, {}, "Asleep"),
        ({"phase": "Queued", "attempts": [ASLEEP | {"wokenAt": "2026-11-22T18:30:00Z"}]}, {}, "Queued"),
    ],
)
def test_the_state_is_what_was_asked_for(status: dict[str, object] | None, extra: dict[str, bool], expected: str) -> None:
    assert make_hub_job(status, **extra).state == expected


@pytest.mark.parametrize(("seconds", "text"), [(-3, "0s"), (59, "59s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200_000, "2d")])
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(("done", "text"), [(0.0, "··········"), (0.5, "█████·····"), (0.3333, "███▍······"), (1.0, "██████████")])
def test_bars(done: float, text: str) -> None:
    assert bar(done) == text


def test_work_outside_the_steps_has_its_own_words() -> None:
    def said(progress: Progress) -> str:
        return done_words(task_of_status(TaskStatus(name="train", progress=progress), "train", []))

    assert said(Progress(step=0, of=120, summary="loading the model")) == "loading the model"
    assert said(Progress.model_validate(make_progress(12, 120))) == "step 12/120 10%"
    assert said(Progress()) == ""


def test_a_cluster_with_two_skus_has_two_lines() -> None:
    skus = [{"name": "h100-80gb", "nodes": 1, "gpusPerNode": 8, "pricePerGpuHour": 2.5}, {"name": "cpu", "nodes": 2, "gpusPerNode": 4}]
    found = hub_cluster({"metadata": {"name": "gcp"}, "spec": {"skus": skus, "cordoned": True}, "status": {"healthy": True}})
    first, second = cluster_rows(found, {}, NOW)
    assert (first["name"], first["sku"], first["total"], first["price_per_hour"], first["heartbeat"]) == (
        "gcp",
        "h100-80gb",
        8,
        2.5,
        "never",
    )
    assert (second["name"], second["sku"], second["total"], second["cordoned"]) == ("", "cpu", 8, "")


def test_an_attempt_that_stops_says_why() -> None:
    shown = page(make_hub_job({"phase": "Running", "attempts": [make_attempt(stopping="Preempted")]}), NOW)
    assert "Running, stopping (Preempted)" in shown


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        ("assumed", "takes about 4.0 h, assumed, as nothing is known of it: set spec.expectedDuration"),
        ("plan", "takes about 4.0 h, as planned"),
        ("", "takes about 4.0 h\n"),
    ],
)
def test_a_predicted_duration_says_where_it_comes_from(basis: str, words: str) -> None:
    status = make_running()
    status["placement"] |= {"seconds": 14400.0, "secondsFrom": basis}
    assert "takes about" not in page(make_hub_job(status), NOW), "its own pace is known"
    del status["progress"]["etaS"]
    assert words in page(make_hub_job(status), NOW)


def test_large_numbers_of_a_table_have_no_exponent() -> None:
    assert table_lines(("a",), [{"a": 77_750.4}, {"a": 9999.2}, {"a": 0.5}]) == ["     a", "77,750", "  9999", "   0.5"]


def test_a_job_that_was_scored_says_how_well_by_the_titles_of_its_metrics() -> None:
    metrics = {"rows": 300, "exact_match": 0.447, "perplexity": 3.1234, "rouge_l": "not a number"}
    judged = [
        {"name": "train", "phase": "Succeeded", "metrics": {"loss": 1.5}},
        {"name": "judge", "phase": "Succeeded", "metrics": metrics},
    ]
    lines = page(make_hub_job({"phase": "Succeeded", "tasks": judged}), NOW).splitlines()
    assert [line for line in lines if line.startswith("metrics")] == ["metrics   judge: exact match 0.447, perplexity 3.123"]
