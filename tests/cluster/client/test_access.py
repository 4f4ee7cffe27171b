"""Who may not, hubs that are not there, and two at once."""

from __future__ import annotations

import datetime
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders.hub_jobs import make_manifest, make_running
from tests.clusters.hub_client import Say, as_user, create, held, report
from tests.testcluster import Hub
from tests.testcluster.waiting import wait_for

import tuneyard
from tuneyard.api import TuneyardError
from tuneyard.cluster import open_hub


def test_expired_credentials(hub: Hub, tmp_path: Path, say: Say) -> None:
    config = as_user(hub, tmp_path, valid=datetime.timedelta(minutes=-1))
    code, _, err = say("status", "--kubeconfig", config)
    assert code == 1
    assert err.startswith(
        f"error: the hub at {hub.server} does not accept your credentials: they are missing, wrong or expired\nnext: log in again"
    )


def test_a_token_that_nobody_knows(hub: Hub, tmp_path: Path, say: Say) -> None:
    config = yaml.safe_load(hub.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "not-a-token"}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    code, _, err = say("status", "--kubeconfig", tmp_path / "config")
    assert (code, "does not accept your credentials" in err) == (1, True)


@pytest.mark.parametrize(
    ("verbs", "words", "verb"),
    [
        (None, ("status",), "list"),
        (["list"], ("status", "support-bot"), "get"),
        (["get"], ("cancel", "support-bot"), "patch"),
        (["get", "list"], ("submit", "FILE"), "create"),
        (["get"], ("clusters",), "list"),
    ],
)
def test_what_rbac_does_not_grant_is_named(
    hub: Hub, tmp_path: Path, file: Path, say: Say, verbs: list[str] | None, words: tuple[str, ...], verb: str
) -> None:
    create(hub)
    config = as_user(hub, tmp_path, **({"verbs": verbs} if verbs else {}))
    code, _, err = say(*(file if word == "FILE" else word for word in words), "--kubeconfig", config)
    assert code == 1
    kind = words[0] if words[0] == "clusters" else "jobspecs"
    assert f"may not {verb} {kind}" in err
    assert f"kubectl auth can-i {verb} {kind}.tuneyard.dev" in err


def test_who_may_get_but_not_watch_can_still_wait(hub: Hub, tmp_path: Path, say: Say) -> None:
    create(hub)
    config = as_user(hub, tmp_path, verbs=["get"])
    later = threading.Timer(1.0, report, (hub, {"phase": "Succeeded"}))
    later.start()
    assert say("wait", "support-bot", "--kubeconfig", config)[:2] == (0, "default/support-bot: Succeeded\n")
    later.join()


@pytest.mark.usefixtures("logged")
def test_secrets_that_may_not_be_read_are_named(hub: Hub, tmp_path: Path, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    config = as_user(hub, tmp_path, verbs=["get"])
    code, _, err = say("logs", "support-bot", "--kubeconfig", config)
    assert code == 1
    assert "no credentials are in the environment" in err
    assert "may not get secrets in namespace default" in err


def test_a_hub_that_does_not_answer(hub: Hub, tmp_path: Path, say: Say) -> None:
    config = yaml.safe_load(hub.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    code, _, err = say("status", "--kubeconfig", tmp_path / "config")
    assert code == 1
    assert err.startswith("error: the hub at https://127.0.0.1:9 does not answer: connection refused\nnext: check that the hub is up")


def test_a_hub_that_is_not_the_one_it_says(hub: Hub, tmp_path: Path, say: Say) -> None:
    config = yaml.safe_load(hub.kubeconfig.read_text())
    config["clusters"][0]["cluster"] |= {"server": hub.server, "tls-server-name": "another.example.com"}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    code, _, err = say("status", "--kubeconfig", tmp_path / "config")
    assert (code, "certificate is not the one that was expected" in err) == (1, True)


def test_no_kubeconfig(tmp_path: Path, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    code, _, err = say("status")
    assert (code, "no hub is configured" in err) == (1, True)


def test_a_cluster_without_tuneyard(hub: Hub, say: Say) -> None:
    crd = json.loads(hub.kubectl("get", "crd", "clusters.tuneyard.dev", "-o", "json"))
    hub.kubectl("delete", "crd", "clusters.tuneyard.dev")
    try:
        wait_for("the kind to go", lambda: say("clusters")[0] == 1)
        code, _, err = say("clusters")
    finally:
        hub.apply(
            {"apiVersion": crd["apiVersion"], "kind": crd["kind"], "metadata": {"name": crd["metadata"]["name"]}, "spec": crd["spec"]}
        )
    assert code == 1
    assert "knows no clusters: Tuneyard is not installed on it" in err
    assert "helm install" in err


@pytest.mark.usefixtures("hub")
def test_two_who_submit_at_once_make_one_job(file: Path) -> None:
    outcomes: list[str] = []
    racing = [threading.Thread(target=lambda: outcomes.append(tuneyard.submit(file).outcome)) for _ in range(8)]
    for thread in racing:
        thread.start()
    for thread in racing:
        thread.join()
    assert sorted(outcomes) == ["created", *["unchanged"] * 7]


def test_a_change_that_the_operator_overtakes_is_decided_anew(hub: Hub) -> None:
    """The operator starts the job between our look and our write: the write is refused, and so is the change."""
    create(hub)
    client = open_hub()
    send = client._api._send

    def late(method: str, *rest: Any) -> Any:
        if method == "PUT":
            report(hub, make_running())
        return send(method, *rest)

    client._api._send = late  # type: ignore[method-assign]
    with pytest.raises(TuneyardError, match="is Running already, and the file differs"):
        client.submit(make_manifest(steps=100))
    assert held(hub)["spec"]["tasks"][0]["train"]["steps"] == 120
