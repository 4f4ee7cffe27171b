"""What a user sees of the scheduler through the objects that the hub holds: reasons, estimates, usage."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.builders.hub_jobs import CREATED, make_attempt, make_held, make_manifest

from tuneyard import admission
from tuneyard.api import JobSpec, JobStatus
from tuneyard.cli.clusters import rows
from tuneyard.cli.jobs.why import lines, no_members
from tuneyard.cli.usage import facts as usage_facts
from tuneyard.cluster import Snapshot, usage_report, waiting_tasks
from tuneyard.cluster.hub_job import hub_job
from tuneyard.console.hub.job_view import outlooks_of
from tuneyard.federation import ask_of

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
DAY = datetime(2026, 11, 20, 14, 0, tzinfo=UTC)


def cluster(name: str, nodes: int, free: int = 8, price: float = 2.0, **status: Any) -> dict[str, Any]:
    found = [{"name": f"n{n}", "sku": "h100-80gb", "gpus": 8, "free": free} for n in range(1, nodes + 1)]
    skus = [{"name": "h100-80gb", "nodes": nodes, "gpusPerNode": 8, "pricePerGpuHour": price}]
    return {"metadata": {"name": name}, "spec": {"skus": skus}, "status": {"healthy": True, "nodes": found, **status}}


def job(name: str, status: dict[str, Any] | None = None, workers: int = 16, **spec: Any) -> dict[str, Any]:
    found = make_held(status, name, **spec)
    found["spec"]["tasks"][0]["resources"] = {"workers": workers, "sku": ["h100-80gb"]}
    return found


def running(**more: Any) -> dict[str, Any]:
    """16 GPUs on n1 and n2 of gcp-h100 since 12:00."""
    return {"phase": "Running", "attempts": [make_attempt(startedAt=CREATED, **more)]}


def outlook(snapshot: Snapshot, item: dict[str, Any]) -> Any:
    spec = JobSpec.model_validate({key: item[key] for key in ("apiVersion", "kind", "metadata", "spec")})
    asks = [ask_of(spec, NOW.timestamp(), task, JobStatus()) for task in waiting_tasks(spec, JobStatus())]
    return snapshot.outlook(asks, NOW, named=spec.spec.team)


def test_a_job_that_would_start_at_once_with_its_cost() -> None:
    snapshot = Snapshot((cluster("gcp-h100", 2),), (), ())
    (found,) = outlook(snapshot, job("new", expectedDuration="10h"))
    assert (found.place.cluster, found.place.workers, found.ahead) == ("gcp-h100", 16, 0)
    hours = found.place.seconds / 3600
    assert 3 < hours < 6  # ten hours on a100-80gb
    assert snapshot.cost(found.place) == round(hours * 16 * 2.0, 2)


def test_a_job_that_waits_for_another_by_name_and_time() -> None:
    busy = job("busy", running(), expectedDuration="6h")
    busy["status"]["attempts"][0]["placement"]["seconds"] = 4 * 3600
    waiting = job("late")
    snapshot = Snapshot((cluster("gcp-h100", 2), cluster("dca", 1, cordoned=False)), (busy, waiting), ())
    (found,) = outlook(snapshot, waiting)
    assert found.place is None
    assert found.wait.reasons["gcp-h100"].endswith("enough at about 2026-11-21 16:00 UTC when maps/busy ends")
    assert found.wait.starts == datetime(2026, 11, 21, 16, 0, tzinfo=UTC).timestamp()
    page = lines(hub_job(waiting), [found], NOW)
    assert page[2] == "train waits for 16 x h100-80gb; 0 ahead of it"
    assert page[-1] == "  expected start: about 2026-11-21 16:00 UTC, in 2h"


def test_a_team_that_does_not_exist_and_one_whose_budget_is_spent() -> None:
    maps = {"metadata": {"name": "maps"}, "spec": {"gpuHours": 5}, "status": {"gpuHoursUsed": 6, "usageAt": "2026-11-21T13:00:00Z"}}
    nobody = job("a", team="nobody")
    (found,) = outlook(Snapshot((cluster("gcp-h100", 2),), (nobody,), (maps,)), nobody)
    assert found.wait.held == "there is no team nobody: create it, or name one of those there are (maps)"
    (found,) = outlook(Snapshot((cluster("gcp-h100", 2),), (), (maps,)), job("b"))
    assert "the budget of team maps, 5 GPU-hours a month, is spent" in found.wait.held


def test_a_dry_run_of_a_team_that_does_not_exist_and_has_no_job_yet() -> None:
    maps = {"metadata": {"name": "maps"}, "spec": {}}
    (found,) = outlook(Snapshot((cluster("gcp-h100", 2),), (), (maps,)), job("a", team="nobody"))
    assert found.wait.held == "there is no team nobody: create it, or name one of those there are (maps)"


def test_a_team_that_cannot_be_read_closes_itself_and_nobody_else() -> None:
    bad = {"metadata": {"name": "bad"}, "spec": {"weight": 0}}
    (found,) = outlook(Snapshot((cluster("gcp-h100", 2),), (), (bad,)), job("a"))
    assert found.place is not None
    (found,) = outlook(Snapshot((cluster("gcp-h100", 2),), (), (bad,)), job("a", team="bad"))
    assert found.wait.held == "Team bad: its spec cannot be read: spec.weight: Input should be greater than 0.000001"


def test_a_job_that_cannot_be_judged_and_a_cluster_of_a_newer_hub_cost_the_other_jobs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(job: JobSpec, *asked: Any) -> Any:
        if job.metadata.name == "broken":
            raise ValueError("a rule that fails on this job\nin detail")
        return admission.ask_of(job, *asked)

    monkeypatch.setattr("tuneyard.cluster.snapshot.ask_of", judged)
    newer = {"metadata": {"name": "newer"}, "spec": {"skus": [{"name": "h100-80gb", "nodes": "many"}]}}
    broken, waiting = job("broken"), job("late")
    snapshot = Snapshot((cluster("gcp-h100", 2), newer), (broken, job("busy", running()), waiting), ())

    (found,) = outlooks_of(hub_job(waiting), snapshot, NOW)
    assert (found.task, found.ahead, [*found.wait.reasons]) == ("train", 0, ["gcp-h100"])
    assert outlooks_of(hub_job(broken), snapshot, NOW) == []
    spec, status = snapshot.read_job(broken) or pytest.fail("it can be read")
    asks, obstacle = snapshot.asks(spec, NOW.timestamp(), status)
    assert asks == []
    assert lines(hub_job(broken), [], NOW, obstacle)[1] == "its tasks cannot be judged: ValueError: a rule that fails on this job"


def test_tasks_wait_for_what_they_need() -> None:
    spec = JobSpec.model_validate(make_manifest())
    assert waiting_tasks(spec, JobStatus()) == ["train"]
    done = JobStatus.model_validate({"phase": "Running", "tasks": [{"name": "train", "phase": "Succeeded"}]})
    assert waiting_tasks(spec, done) == ["judge"]
    assert waiting_tasks(spec, JobStatus.model_validate({"phase": "Succeeded"})) == []


def test_what_jobs_hold_is_taken_off_what_is_free() -> None:
    snapshot = Snapshot((cluster("gcp-h100", 4),), (job("one", running()), job("two", running(cleaned=True))), ())
    (row,) = rows(snapshot.members()[0], snapshot.held(), NOW)
    assert (row["free"], row["held"], row["down"], row["total"]) == (16, 16, 0, 32)


def test_usage_has_what_endpoints_have_charged_beside_the_cost_of_gpus() -> None:
    place = {"cluster": "gcp-h100", "sku": "h100-80gb", "workers": 1, "gpus": 0, "pods": 0}
    ended = make_attempt(task="judge", phase="Succeeded", placement=place, endedAt="2026-11-21T13:00:00Z")
    status = {"phase": "Succeeded", "attempts": [ended], "tasks": [{"name": "judge", "metrics": {"cost": 1.25}}]}
    item = make_held(status, "asked")
    score = {"data": {"source": "rows.jsonl"}, "engine": {"endpoint": {"url": "https://api.example.com/v1", "model": "small"}}}
    item["spec"]["tasks"] = [{"name": "judge", "score": score}]

    report = usage_report(Snapshot((cluster("gcp-h100", 4),), (item,), ()), DAY, NOW)

    (row,) = report.teams()
    assert (row["jobs"], row["gpu_hours"], row["cost"], row["endpoint_cost"]) == (1, 0.0, 0.0, 1.25)
    assert usage_report(Snapshot((), (item,), ()), DAY, NOW.replace(hour=13)).jobs == (), "it counts at its end"


def test_usage_has_what_endpoints_have_charged_for_each_attempt() -> None:
    """One has failed, and the next one resumed: its cost, of all attempts, is not counted beside their charges."""
    place = {"cluster": "gcp-h100", "sku": "h100-80gb", "workers": 1, "gpus": 0, "pods": 0}
    ends = {"task": "judge", "placement": place, "endedAt": "2026-11-21T13:00:00Z"}
    attempts = [make_attempt(1, phase="Failed", charged=0.5, **ends), make_attempt(2, phase="Succeeded", charged=0.75, **ends)]
    item = make_held({"phase": "Succeeded", "attempts": attempts, "tasks": [{"name": "judge", "metrics": {"cost": 1.0}}]}, "asked")
    score = {"data": {"source": "rows.jsonl"}, "engine": {"endpoint": {"url": "https://api.example.com/v1", "model": "small"}}}
    item["spec"]["tasks"] = [{"name": "judge", "score": score}]

    (row,) = usage_report(Snapshot((cluster("gcp-h100", 4),), (item,), ()), DAY, NOW).teams()

    assert (row["jobs"], row["endpoint_cost"]) == (1, 1.25)


def test_usage_has_what_an_endpoint_of_embeddings_has_charged_beside_an_engine() -> None:
    ended = make_attempt(task="judge", phase="Succeeded", endedAt="2026-11-21T13:00:00Z")
    status = {"phase": "Succeeded", "attempts": [ended], "tasks": [{"name": "judge", "metrics": {"cost": 40.0, "embedding_cost": 1.25}}]}
    item = make_held(status, "embedded")
    item["spec"]["tasks"] = [
        {
            "name": "judge",
            "score": {
                "model": {"name": "m"},
                "data": {"source": "rows.jsonl", "reference": "answer"},
                "metrics": ["embedding_similarity"],
                "embedding": {"endpoint": {"url": "https://api.example.com/v1", "model": "small"}},
            },
        }
    ]

    (row,) = usage_report(Snapshot((cluster("gcp-h100", 4),), (item,), ()), DAY, NOW).teams()

    assert (row["jobs"], row["endpoint_cost"]) == (1, 1.25)


def test_usage_by_team_job_and_sku_with_what_stood_idle() -> None:
    priced = running()
    priced["attempts"][0]["placement"]["pricePerGpuHour"] = 2.5
    snapshot = Snapshot((cluster("gcp-h100", 4),), (job("one", priced), job("two")), ())
    report = usage_report(snapshot, DAY, NOW)
    (row,) = report.teams()
    assert row == {"team": "maps", "sku": "h100-80gb", "jobs": 1, "gpus_now": 16, "gpu_hours": 32.0, "cost": 80.0, "endpoint_cost": 0.0}
    (sku,) = report.skus
    assert (sku.gpus, sku.gpu_hours, sku.idle) == (32, 32.0, 1 - 32 / (32 * 24))
    assert usage_facts(report)["jobs"][0]["job"] == "maps/one"
    young = cluster("gcp-h100", 4)
    young["metadata"]["creationTimestamp"] = "2026-11-21T12:00:00Z"
    (sku,) = usage_report(Snapshot((young,), (job("one", priced),), ()), DAY, NOW).skus
    assert sku.idle == 1 - 32 / (32 * 2), "what was not there yet did not stand idle"
    (sku,) = report.skus
    assert usage_report(snapshot, DAY, NOW, team="other").jobs == ()


def test_on_a_hub_without_members_why_says_that_none_is_registered_and_what_to_do() -> None:
    told = no_members(hub_job(job("new")), NOW)
    assert told[2:] == [
        "it waits for a member cluster: none is registered with this hub",
        "next: add one as docs/install.md says; tuneyard clusters lists them",
    ]


def test_why_names_the_latest_runs_of_a_schedule_as_the_source_of_a_duration() -> None:
    labels = {"tuneyard.dev/schedule": "nightly"}
    done = job("nightly-1", {"phase": "Succeeded", "tasks": [{"name": "train", "phase": "Succeeded"}], **_ran()})
    waiting = job("nightly-2", {"phase": "Queued"}, workers=64)
    for item in (done, waiting):
        item["metadata"]["labels"] = labels
    (found,) = outlook(Snapshot((cluster("gcp-h100", 2),), (done, waiting), ()), waiting)
    page = lines(hub_job(waiting), [found], NOW)
    assert any(line.startswith("  takes about") and "as the latest runs of its Schedule took" in line for line in page)


def _ran() -> dict[str, Any]:
    return {"attempts": [make_attempt(startedAt=CREATED, endedAt="2026-11-21T13:00:00Z", cleaned=True)]}
