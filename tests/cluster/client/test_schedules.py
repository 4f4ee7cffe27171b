"""Schedules of a hub, as `tuneyard schedule` shows and changes them, on a real API server with the real schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.builders.schedules import TEMPLATE
from tests.clusters.hub_client import Kubectl, Say
from tests.clusters.hubs import remove_all
from tests.testcluster import Hub
from tests.testcluster.kubeapi import Refused

PATH = "/apis/tuneyard.dev/v1alpha1/namespaces/default/schedules"
HEAD = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Schedule", "metadata": {"name": "nightly", "namespace": "default"}}
EVIL = "<b>bold</b> \u202egnp.exe \u001b[31mred"
STATUS = {
    "lastRun": "2026-11-24T02:00:00Z",
    "nextRun": "2026-11-25T02:00:00Z",
    "conditions": [{"type": "Regressed", "status": "True", "reason": "Worse", "message": EVIL}],
    "runs": [
        {"name": "nightly-1", "due": "2026-11-23T02:00:00Z", "phase": "Succeeded", "verdict": "good"},
        {
            "name": "nightly-2",
            "due": "2026-11-24T02:00:00Z",
            "phase": "Succeeded",
            "verdict": "regressed",
            "message": EVIL,
            "figures": [{"task": "judge", "name": "perplexity", "value": 12.5, "low": 12.0, "high": 13.0}],
        },
    ],
}


def goal(**changes: Any) -> dict[str, Any]:
    return {**HEAD, "spec": {"cron": "0 2 * * *", "template": TEMPLATE, **changes}}


@pytest.fixture
def nightly(hub: Hub) -> Iterator[Hub]:
    hub.api.create(PATH, goal(regression={"perplexity": {"worseBy": "2%"}}, waitFor={"path": "s3://b/{{ run.date }}"}))
    hub.api.patch(f"{PATH}/nightly/status", {"status": STATUS})
    yield hub
    remove_all(hub, "schedules")


def spec(hub: Hub) -> dict[str, Any]:
    return dict(hub.api.get(f"{PATH}/nightly")["spec"])


def test_list_show_and_history(nightly: Hub, say: Say) -> None:
    code, out, _ = say("schedule", "list")
    assert code == 0
    assert out.splitlines()[1].split()[:3] == ["nightly", "default", "0"]
    (told,) = json.loads(say("schedule", "list", "-A", "-o", "json")[1])
    assert (told["name"], told["regressed"], told["verdict"]) == ("nightly", True, "regressed")
    code, out, _ = say("schedule", "history", "nightly")
    assert code == 1, "the last run is bad"
    assert "perplexity 12.5" in out
    assert "nightly-2" in out.splitlines()[1]
    assert "\u202e" not in out + say("schedule", "show", "nightly")[1]
    assert "\u001b" not in say("schedule", "history", "nightly")[1]
    runs = json.loads(say("schedule", "history", "nightly", "--limit", "1", "-o", "json")[1])
    assert [run["verdict"] for run in runs] == ["regressed"]
    nightly.api.patch(f"{PATH}/nightly/status", {"status": {"runs": STATUS["runs"][:1]}})
    assert say("schedule", "history", "nightly")[0] == 0


def test_pause_resume_and_runs_on_demand(nightly: Hub, say: Say) -> None:
    assert say("schedule", "pause", "nightly")[0] == 0
    assert spec(nightly)["suspend"] is True
    assert say("schedule", "resume", "nightly")[0] == 0
    assert spec(nightly)["suspend"] is False
    assert say("schedule", "run-now", "nightly")[0] == 0
    assert spec(nightly)["runNow"].startswith("2")
    assert say("schedule", "run-now", "nightly", "--from", "2026-11-01", "--to", "2026-11-14", "--parallel", "3")[0] == 0
    asked = spec(nightly)["backfill"]
    assert {**asked, "id": ""} == {"from": "2026-11-01", "to": "2026-11-14", "parallel": 3, "id": ""}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--from", "2026-11-31", "--to", "2026-12-01"), "2026-11-31 is not a date"),
        (("--from", "2026-11-10", "--to", "2026-11-01"), "to 2026-11-01 is before from 2026-11-10"),
        (("--to", "2026-11-01"), "--to is given without --from"),
    ],
)
def test_dates_that_are_none(nightly: Hub, say: Say, words: tuple[str, ...], reason: str) -> None:
    code, _, err = say("schedule", "run-now", "nightly", *words)
    assert (code, reason in err) == (2, True), err
    assert "backfill" not in spec(nightly)


def test_names_that_are_nearly_right(nightly: Hub, say: Say) -> None:
    assert nightly
    code, _, err = say("schedule", "pause", "nigthly")
    assert (code, "did you mean nightly?" in err) == (2, True)


def test_the_plugin_of_kubectl(nightly: Hub, kubectl: Kubectl) -> None:
    assert nightly
    told = kubectl("tuneyard", "-n", "default", "schedule", "history", "nightly", "-o", "json")
    assert told.returncode == 1, told.stderr
    assert len(json.loads(told.stdout)) == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("regression", {"perplexity": {"worseBy": "2"}}),
        ("regression", {"perplexity": {"better": "sideways"}}),
        ("waitFor", {"timeout": "1h"}),
        ("waitFor", {"path": "s3://a", "timeout": "soon"}),
        ("backfill", {"from": "yesterday", "to": "2026-11-01"}),
        ("backfill", {"from": "2026-11-01", "to": "2026-11-01", "parallel": 0}),
        ("notify", {"webhook": "file:///etc/passwd"}),
        ("notify", {"webhook": "https://x.example", "on": ["always"]}),
        ("runNow", "now"),
    ],
)
def test_an_api_server_refuses_wrong_fields(hub: Hub, field: str, value: Any) -> None:
    with pytest.raises(Refused, match=field):
        hub.api.create(f"{PATH}?fieldValidation=Strict", goal(**{field: value}))
