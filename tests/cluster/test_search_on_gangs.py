"""Searches on pods: two gangs measure at once, each in a pod of its own, and a search begins with what others have measured."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.home import secret, values
from tests.cluster.test_charts import SYSTEM, helm
from tests.clusters.console_pods import LIMIT_S, searching, status_of, told
from tests.servers.installed import PostgresServer
from tests.testcluster import Member
from tests.testcluster.install import Storage
from tests.testcluster.waiting import wait_for
from tests.unit.charts.rendering import CHARTS, HUB

from tuneyard.storage import open_store
from tuneyard.tracking import LogReader

FIGURES = "TUNEYARD_TEST_FIGURES"
"""Variable with a file to which the test writes the figures of the searches, for docs/benchmarks/tuner_gangs.md."""
RUNS = "/apis/history.tuneyard.dev/v1alpha1/namespaces/default/trainingruns"
Share = Callable[[str], None]
"""Whose runs a search gets: `history.searches` of the hub's chart."""
SPACE = {"batch.micro": [1, 2, 4, 8], "strategy.zero": [0, 1, 2]}

pytestmark = pytest.mark.long


@pytest.fixture
def history(home: Member) -> Iterator[Share]:
    """Gives the hub a history in a PostgreSQL of this machine, of which searches get as much as told. The hub is without it afterwards."""
    server = PostgresServer("-searches", address=home.address)

    def share(searches: str) -> None:
        chosen = {"postgresql": {"external": {"secretName": "searches", "key": "url"}}, "history": {"searches": searches}}
        upgraded(home, {**values(home), **chosen})

    try:
        server.start()
        home.apply(secret(SYSTEM, "searches", {"url": server.url}))
        yield share
        home.kubectl("delete", "jobspecs", "--all", "-n", "default", "--timeout=240s")
    finally:
        upgraded(home, values(home))
        server.remove()


def upgraded(member: Member, chosen: dict[str, Any]) -> None:
    helm(member, "upgrade", HUB, str(CHARTS / HUB), values=chosen)
    member.kubectl("rollout", "status", "deployment/tuneyard-hub", "-n", SYSTEM, "--timeout=500s")


def search_job(name: str, at_once: int) -> dict[str, Any]:
    job = searching(name)
    tune = job["spec"]["tasks"][2]["tune"]
    tune |= {"space": SPACE, "stepsPerTrial": 12, "budget": {"trials": 8, "rounds": 2, "pairs": 1, "atOnce": at_once}}
    return job


def searched(member: Member, name: str) -> dict[str, Any]:
    """The status of a job at the end of its search. The tuned task does not run."""

    def ended() -> dict[str, Any] | None:
        status = status_of(member, name)
        assert status.get("phase") != "Failed", told(member, name)
        phases = {task["name"]: task["phase"] for task in status.get("tasks", [])}
        return status if phases.get("search") == "Succeeded" else None

    found = wait_for(f"the end of the search of {name}", ended, limit_s=LIMIT_S, every_s=1, words=lambda: told(member, name))
    member.kubectl("patch", "jobspec", name, "-n", "default", "--type=merge", "-p", '{"spec": {"cancelled": true}}')
    return dict(found)


def figures(name: str, status: dict[str, Any]) -> dict[str, Any]:
    """The search of a job: its gain and its runs, from the record in its output, and its minutes, from its attempt."""
    (attempt,) = [each for each in status["attempts"] if each["task"] == "search"]
    store = open_store(status["output"])
    record = json.loads(store.get("search/trials.json"))
    said = LogReader(store, "search", attempt["number"]).read("driver").text
    return {
        "name": name,
        "workers": attempt["placement"]["workers"],
        "began": attempt["startedAt"],
        "ended": attempt["endedAt"],
        "said": next(line for line in said.splitlines() if "combinations" in line),
        **record,
    }


def test_two_gangs_search_at_once_and_begin_with_what_others_have_measured(
    home: Member, history: Share, storage_of: tuple[Member, Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In `make test`: `test_a_search_measures_and_writes_the_winner_down`, and `test_a_search_starts_with_the_gangs_that_have_room`."""
    for name, value in storage_of[1].environment.items():
        monkeypatch.setenv(name, value)
    found: list[dict[str, Any]] = []

    def in_history() -> bool:
        return len(json.loads(home.kubectl("get", "--raw", RUNS))["items"]) >= sum(len(each["trials"]) for each in found)

    history("none")
    for name, at_once, shared in (("alone", 1, "none"), ("together", 2, "none"), ("informed", 2, "all")):
        if shared == "all":
            wait_for("the runs of both in history", in_history, limit_s=300, every_s=1)
            history(shared)
        home.apply(search_job(name, at_once))
        found.append(figures(name, searched(home, name)))
    if path := os.environ.get(FIGURES):
        Path(path).write_text(json.dumps(found, indent=1))
    _, together, informed = found
    assert [each["workers"] for each in found] == [1, 2, 2]
    assert ["no history" in each["said"] for each in found] == [True, True, False]
    assert "timed runs in history" in informed["said"]
    for each in (together, informed):
        assert "on 2 gangs at once" in each["said"]
        assert {own["gang"] for own in each["own"]} == {1, 2}
        assert all(one["gang"] == other["gang"] for one, other in each["pairs"])
