"""A JobSpec from the hub, also from a hub that is newer than this client."""

from __future__ import annotations

from tests.builders.hub_jobs import make_attempt, make_held, make_hub_job, make_running

from tuneyard.api import Phase
from tuneyard.cluster.hub_cluster import Capacity, hub_cluster
from tuneyard.cluster.hub_job import hub_job

CLUSTER = {
    "metadata": {"name": "gcp-h100"},
    "spec": {"skus": [{"name": "h100-80gb", "nodes": 3, "gpusPerNode": 8}]},
}


def test_a_job_that_nobody_has_looked_at_is_pending() -> None:
    job = make_hub_job()
    assert (job.label, job.phase, job.ended, job.output) == ("maps/support-bot", Phase.PENDING, False, "")


def test_a_failure_that_was_corrected_since_is_no_end() -> None:
    found = make_held({"phase": "Failed", "observedGeneration": 1})
    found["metadata"]["generation"] = 1
    assert hub_job(found).ended
    found["metadata"]["generation"] = 2
    assert not hub_job(found).ended


def test_tasks_stand_in_the_order_in_which_they_run() -> None:
    found = make_held()
    found["spec"]["tasks"].reverse()
    job = hub_job(found)
    assert [(task.name, task.kind, task.upstream) for task in job.tasks] == [("train", "train", ()), ("judge", "score", ("train",))]


def test_what_a_newer_hub_adds_is_left_out() -> None:
    found = make_held(make_running() | {"shiny": 1})
    found["status"]["attempts"][0]["shiny"] = {"a": 1}
    found["spec"]["shiny"] = True
    job = hub_job(found)
    assert job.phase is Phase.RUNNING
    assert len(job.status.attempts) == 2


def test_a_status_that_cannot_be_read_keeps_its_phase() -> None:
    job = make_hub_job({"phase": "Running", "attempts": [{"number": "first"}]})
    assert job.phase is Phase.RUNNING
    assert job.status.message.startswith("upgrade tuneyard")


def test_a_spec_that_only_the_rules_refuse_still_has_tasks() -> None:
    found = make_held()
    found["spec"]["tasks"][0]["train"]["strategy"] = {"zero": 7}
    assert [(task.name, task.kind) for task in hub_job(found).tasks] == [("train", "train"), ("judge", "score")]


def test_the_output_is_the_hubs_choice_where_the_spec_has_none() -> None:
    assert make_hub_job(storage={"output": "s3://a/b"}).output == "s3://a/b"
    assert make_hub_job({"output": "s3://hub/maps/x"}, storage={}).output == "s3://hub/maps/x"


def test_advice_comes_from_the_last_failure() -> None:
    attempts = [make_attempt(1, phase="Failed", nextStep="first"), make_attempt(2, phase="Failed", nextStep="second")]
    assert make_hub_job({"phase": "Failed", "attempts": attempts}).next_step() == "second"
    assert make_hub_job({"phase": "Running", "attempts": attempts}).next_step() == ""


def test_a_cluster_promises_until_its_nodes_were_counted() -> None:
    found = hub_cluster(CLUSTER)
    assert found.capacity == (Capacity("h100-80gb", 24, None, 0.0),)
    assert not found.healthy
    assert "not looked at yet" in found.message


def test_nodes_that_are_not_ready_have_nothing_free() -> None:
    nodes = [
        {"name": "a", "sku": "h100-80gb", "gpus": 8, "free": 5},
        {"name": "b", "sku": "h100-80gb", "gpus": 8, "free": 8, "ready": False},
    ]
    found = hub_cluster(CLUSTER | {"status": {"healthy": True, "nodes": nodes, "heartbeat": "2026-11-21T12:00:00Z"}})
    assert found.healthy
    assert found.capacity == (Capacity("h100-80gb", 16, 5, 0.0, 8),)


def test_a_cluster_that_cannot_be_read_says_so() -> None:
    found = hub_cluster({"metadata": {"name": "x"}, "spec": {}})
    assert found.message.startswith("cannot be read: spec.skus")
