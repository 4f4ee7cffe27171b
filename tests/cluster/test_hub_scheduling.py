"""Scheduling on real API servers, without pods: who goes first, who makes room for whom, and what people are told who wait.

Tests speak as attempts would. The decisions themselves are tested in tests/unit/federation.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import PAIR
from tests.clusters.hubs import API, JOBS, Operator, job, jobspec, prepared, rayjobs, remove_all, speak, submit_all, until
from tests.testcluster.clusters import Clusters

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture(scope="module")
def stage(plain: Clusters) -> Iterator[Clusters]:
    """A hub, and one member with two machines of eight GPUs."""
    clusters = Clusters(plain.hub, plain.members[:1])
    prepared(clusters, selector=PAIR)
    yield clusters
    remove_all(plain.hub, "clusters")


@pytest.fixture(scope="module")
def operator(stage: Clusters) -> Iterator[Operator]:
    made = Operator(stage.hub.folder, stage.hub.kubeconfig, "scheduling", options=("--settle-after", "3"))
    made.start()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def nothing_left(stage: Clusters, operator: Operator) -> Iterator[None]:
    yield
    remove_all(stage.hub, "jobspecs", "teams")
    until(lambda: not rayjobs(stage.members[0]), f"nothing is left on the member\n{operator.log[-3000:]}")


def team(stage: Clusters, name: str, **spec: Any) -> None:
    stage.hub.apply({"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Team", "metadata": {"name": name}, "spec": spec})


def status(stage: Clusters, name: str) -> dict[str, Any]:
    return job(stage.hub, name).get("status") or {}


def attempt(stage: Clusters, name: str, number: int = 1) -> dict[str, Any]:
    """An attempt whose RayJob is there."""

    def there() -> dict[str, Any] | None:
        attempts = status(stage, name).get("attempts") or []
        names = {item["metadata"]["name"] for item in rayjobs(stage.members[0])}
        return attempts[number - 1] if len(attempts) >= number and attempts[number - 1]["name"] in names else None

    found: dict[str, Any] = until(there, f"attempt {number} of {name} has a RayJob")
    return found


def waits(stage: Clusters, name: str, words: str) -> str:
    """The message of a job that waits, once it says this."""
    found: str = until(lambda: words in (said := status(stage, name).get("message", "")) and said, f"{name} says {words!r}")
    return found


def asked_to_stop(stage: Clusters, name: str) -> str:
    report = stage.members[0].api.find(f"{API}/namespaces/{JOBS}/attemptreports/{name}") or {}
    stop = report.get("spec", {}).get("stop") or {}
    return str(stop.get("reason", ""))


def tuneyard(stage: Clusters, *words: str) -> str:
    command = [str(Path(sys.executable).with_name("tuneyard")), *words, "--kubeconfig", str(stage.hub.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job_of_high_priority_takes_the_place_of_one_that_checkpoints_first_and_goes_on_later(stage: Clusters) -> None:
    submit_all(stage.hub, [jobspec("normal", workers=16)])
    first = attempt(stage, "normal")
    member = stage.members[0]
    speak(member, first["name"], phase="Running", progress={"step": 40, "of": 100}, checkpointStep=30)
    until(lambda: (status(stage, "normal")["attempts"][0]).get("checkpointAt"), "the checkpoint is known")

    submit_all(stage.hub, [jobspec("high", workers=16, priority="high")])
    until(lambda: asked_to_stop(stage, first["name"]) == "Preempted", "the attempt is asked to stop")
    going = status(stage, "normal")["attempts"][0]
    assert (going["stopping"], "makes room for default/high" in going["stoppedFor"]) == ("Preempted", True)
    assert not status(stage, "high").get("attempts"), "it starts when there is room, not before"

    speak(member, first["name"], phase="Preempted", progress={"step": 44, "of": 100}, checkpointStep=44)
    placed = attempt(stage, "high")
    assert placed["placement"]["gpus"] == 16
    assert "default/high" in waits(stage, "normal", "default/high")
    speak(member, placed["name"], phase="Succeeded")
    again = attempt(stage, "normal", 2)
    assert (again["number"], status(stage, "normal")["attempts"][0]["phase"]) == (2, "Preempted")


def test_the_place_that_is_made_goes_to_nobody_else(stage: Clusters) -> None:
    submit_all(stage.hub, [jobspec("normal", workers=16)])
    first = attempt(stage, "normal")
    speak(stage.members[0], first["name"], phase="Running")
    submit_all(stage.hub, [jobspec("high", workers=16, priority="high")])
    until(lambda: asked_to_stop(stage, first["name"]) == "Preempted", "the attempt is asked to stop")
    submit_all(stage.hub, [jobspec("small", workers=1)])
    speak(stage.members[0], first["name"], phase="Preempted")
    attempt(stage, "high")
    assert not status(stage, "small").get("attempts")


def test_a_search_starts_with_the_gangs_that_have_room(stage: Clusters) -> None:
    """It asks for two gangs of eight GPUs. With one in place it ends sooner than the long job that holds the other eight; after a loss it
    gets both."""
    submit_all(stage.hub, [jobspec("long", workers=8, expectedDuration="2d")])
    speak(stage.members[0], attempt(stage, "long")["name"], phase="Running")
    searching = jobspec("searching", workers=8, expectedDuration="10m")
    searching["spec"]["tasks"].append({"name": "search", "tune": {"task": "train", "budget": {"trials": 8, "atOnce": 2}}})
    submit_all(stage.hub, [searching])
    first = attempt(stage, "searching")
    assert (first["task"], first["placement"]["gpus"]) == ("search", 8)

    stage.hub.api.delete(f"{API}/namespaces/default/jobspecs/long")
    until(lambda: len(rayjobs(stage.members[0])) == 1, "the long job is gone")
    speak(stage.members[0], first["name"], phase="Failed", failure={"kind": "NodeLost", "message": "a machine was lost"})
    again = attempt(stage, "searching", 2)
    assert (again["task"], again["placement"]["gpus"]) == ("search", 16)
    (started,) = [item for item in rayjobs(stage.members[0]) if item["metadata"]["name"] == again["name"]]
    head = started["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert {"name": "TUNEYARD_WORKERS", "value": "16"} in head["env"]


def test_a_team_gets_its_own_back_from_one_that_borrows_it(stage: Clusters) -> None:
    team(stage, "maps", quota={"h100-80gb": 16})
    team(stage, "ads", quota={"h100-80gb": 0})
    submit_all(stage.hub, [jobspec("borrower", workers=16, team="ads")])
    first = attempt(stage, "borrower")
    speak(stage.members[0], first["name"], phase="Running")
    submit_all(stage.hub, [jobspec("owner", workers=8, team="maps")])
    until(lambda: asked_to_stop(stage, first["name"]) == "Preempted", "the borrower is asked to stop")
    assert "reclaims quota that team ads has borrowed" in status(stage, "borrower")["attempts"][0]["stoppedFor"]
    speak(stage.members[0], first["name"], phase="Preempted")
    attempt(stage, "owner")
    assert "default/owner" in waits(stage, "borrower", "default/owner")


def test_a_quota_a_budget_and_a_team_that_does_not_exist_are_said(stage: Clusters) -> None:
    team(stage, "maps", quota={"h100-80gb": 8}, borrowingLimit={"h100-80gb": 0})
    submit_all(stage.hub, [jobspec("one", team="maps"), jobspec("lost", team="mpas")])
    attempt(stage, "one")
    submit_all(stage.hub, [jobspec("two", team="maps"), jobspec("large", team="maps", workers=16)])
    assert "team maps holds 8 h100-80gb of a quota of 8" in waits(stage, "two", "quota")
    assert "there is no team mpas: create it, or name one of those there are (maps)" in waits(stage, "lost", "no team")
    assert "may hold at most 8 h100-80gb" in waits(stage, "large", "at most")
    team(stage, "mpas")
    attempt(stage, "lost")


def test_what_no_cluster_could_ever_run_is_said_at_once_and_runs_once_one_can(stage: Clusters) -> None:
    submit_all(stage.hub, [jobspec("huge", workers=64)])
    said = waits(stage, "huge", "no cluster could ever run it")
    assert "the most that one has is 16 h100-80gb; ask for at most 16 workers" in said


def test_people_ask_why_and_when_and_who_has_used_what(stage: Clusters) -> None:
    submit_all(stage.hub, [jobspec("busy", workers=16, expectedDuration="6h")])
    first = attempt(stage, "busy")
    speak(stage.members[0], first["name"], phase="Running")
    submit_all(stage.hub, [jobspec("late", workers=16)])
    assert until(lambda: status(stage, "late").get("expectedStart"), "the hub says when")
    page = tuneyard(stage, "why", "late", "-n", "default")
    assert "train waits for 16 x h100-80gb; 0 ahead of it" in page
    assert "when default/busy ends" in page
    assert "expected start: about" in page
    (row,) = json.loads(tuneyard(stage, "usage", "-o", "json"))["teams"]
    assert (row["team"], row["sku"], row["gpus_now"]) == ("default", "h100-80gb", 16)
