"""Files beside a job go to its storage before the job is created."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
import yaml
from tests.builders.hub_jobs import as_yaml, make_manifest, make_running
from tests.clusters.hub_client import JOBS, Say, held, make_hostile_env, report, storage_of_a_cluster
from tests.servers.installed import S3
from tests.testcluster import Hub

from tuneyard.storage import open_store


@pytest.fixture
def ones_own_keys(s3_server: S3, monkeypatch: pytest.MonkeyPatch, hub: Hub) -> str:  # noqa: ARG001 - clears the environment first
    """The output for a job, in an S3 server whose keys are in the environment."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3_server.bucket}/{time.monotonic_ns()}"


def rows(word: str) -> str:
    """A hundred lines of JSON, of 40 bytes each."""
    return f'{{"text": "{word:>27}"}}\n' * 100


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """The file of a job that prepares data by a script, trains on a file, and scores another."""
    tasks = [
        {"name": "prepare", "process": {"command": ["python", "prepare.py", "--to", "$TUNEYARD_OUTPUT"]}},
        {"name": "train", "train": {"model": {"name": "tiny"}, "data": {"source": "chats.jsonl", "chatTemplate": "chat.jinja"}}},
        {"name": "judge", "score": {"model": {"from": "train"}, "data": {"source": "questions.csv"}}},
    ]
    (tmp_path / "prepare.py").write_text("import words\n")
    (tmp_path / "words.py").write_text("WORDS = []\n")
    (tmp_path / "chats.jsonl").write_text(rows("one"))
    (tmp_path / "chat.jinja").write_text("{{ messages }}")
    (tmp_path / "questions.csv").write_text("prompt\nwhy\n")
    (tmp_path / "job.yaml").write_text(as_yaml({**make_manifest(), "spec": {"tasks": tasks}}))
    return tmp_path / "job.yaml"


def test_files_beside_the_job_are_shipped_before_it_is_created(hub: Hub, beside: Path, ones_own_keys: str, say: Say) -> None:
    code, _, err = say("submit", beside, "--out", ones_own_keys, "--dry-run")
    assert (code, f"would ship 4.0 KiB to {ones_own_keys}/_shipped:" in err) == (0, True), err
    assert open_store(ones_own_keys).list() == []
    assert hub.api.get(JOBS.format("default"))["items"] == []

    code, out, err = say("submit", beside, "--out", ones_own_keys)
    assert (code, out) == (0, "default/support-bot\n"), err
    assert f"ships 4.0 KiB to {ones_own_keys}/_shipped:\n" in err
    assert "  chats.jsonl  3.9 KiB\n" in err
    assert "  prepare.py, words.py  24 B, 2 files\n" in err
    assert "shipping chats.jsonl: 3.9 KiB of 4.0 KiB" in err
    assert "shipped 4.0 KiB\n" in err
    prepare, train, judge = held(hub)["spec"]["tasks"]
    for uri, content in (
        (train["train"]["data"]["source"], rows("one")),
        (train["train"]["data"]["chatTemplate"], "{{ messages }}"),
        (judge["score"]["data"]["source"], "prompt\nwhy\n"),
        (f"{prepare['process']['workingDir']}/words.py", "WORDS = []\n"),
    ):
        assert uri.startswith(f"{ones_own_keys}/_shipped/")
        folder, _, name = uri.rpartition("/")
        assert open_store(folder).get(name).decode() == content
    assert train["train"]["model"]["name"] == "tiny", "no folder of this name is there"
    assert held(hub)["spec"]["storage"]["output"] == ones_own_keys


def test_submitting_again_ships_nothing_new_and_changed_files_alone(hub: Hub, beside: Path, ones_own_keys: str, say: Say) -> None:
    assert say("submit", beside, "--out", ones_own_keys)[0] == 0
    code, _, err = say("submit", beside, "--out", ones_own_keys)
    assert (code, "shipped nothing new; 4 of 4 were there already" in err, "there already and the same" in err) == (0, True, True), err
    (beside.parent / "chats.jsonl").write_text(rows("two"))
    code, _, err = say("submit", beside, "--out", ones_own_keys)
    assert (code, "shipped 3.9 KiB; 3 of 4 were there already" in err, "changed the job, which had not started" in err) == (
        0,
        True,
        True,
    ), err
    report(hub, make_running())
    (beside.parent / "chats.jsonl").write_text(rows("six"))
    count = len(open_store(ones_own_keys).list())
    code, _, err = say("submit", beside, "--out", ones_own_keys)
    assert (code, "the file differs from it: spec.tasks[1].train.data.source" in err) == (2, True), err
    assert len(open_store(ones_own_keys).list()) == count, "nothing is sent for a job that the hub would not take"


def test_what_cannot_be_shipped_has_its_line_and_nothing_is_sent_or_created(hub: Hub, beside: Path, ones_own_keys: str, say: Say) -> None:
    code, _, err = say("submit", beside, "--out", ones_own_keys, "--ship-limit", "3000")
    assert (code, "chats.jsonl has 4,000 bytes" in err, "or raise the limit: --ship-limit 20Gi" in err) == (2, True, True), err
    code, _, err = say("submit", beside)
    assert (code, "the job names no storage" in err, "--out s3://BUCKET/FOLDER" in err) == (2, True, True), err
    assert re.search(r"job\.yaml:\d+:\d+: spec\.tasks\[1\]\.train\.data\.source: chats\.jsonl has to be shipped", err)
    (beside.parent / "prepare.py").unlink()
    code, _, err = say("submit", beside, "--out", ones_own_keys)
    assert code == 2
    assert re.search(r"job\.yaml:\d+:\d+: spec\.tasks\[0\]\.process\.command\[1\]: prepare\.py: no such file", err), err
    (beside.parent / "prepare.py").write_text("")
    code, _, err = say("submit", beside, "--out", ones_own_keys, "-n", "nowhere")
    assert (code, "has no namespace 'nowhere'" in err) == (2, True), err
    assert open_store(ones_own_keys).list() == []
    assert hub.api.get(JOBS.format("default"))["items"] == []


def test_data_that_cannot_be_trained_on_are_not_shipped(hub: Hub, beside: Path, ones_own_keys: str, say: Say) -> None:
    (beside.parent / "chats.jsonl").write_text('{"id": 1, "mark": 2}\n' * 10)
    code, _, err = say("submit", beside, "--out", ones_own_keys)
    assert code == 2
    assert re.search(r"job\.yaml:\d+:\d+: spec\.tasks\[1\]\.train\.data\.source: .*of no known format; columns found: id, mark", err), err
    assert open_store(ones_own_keys).list() == []
    assert hub.api.get(JOBS.format("default"))["items"] == []


def test_storage_that_refuses_the_files_creates_no_job(
    hub: Hub, beside: Path, ones_own_keys: str, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = say("submit", beside, "--out", "s3://no-such-bucket/x")
    assert (code, "there is no bucket 'no-such-bucket'" in err) == (1, True), err
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    code, _, err = say("submit", beside, "--out", ones_own_keys)
    assert (code, "access denied" in err, "nothing was submitted" in err) == (1, True, True), err
    assert hub.api.get(JOBS.format("default"))["items"] == []


def test_files_are_shipped_with_the_keys_of_the_jobs_secrets(
    hub: Hub, beside: Path, ones_own_keys: str, s3_server: S3, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in s3_server.environment:
        monkeypatch.delenv(name)
    place = {name: s3_server.environment[name] for name in ("AWS_ENDPOINT_URL", "AWS_REGION")}
    keys = {name: value for name, value in s3_server.environment.items() if name not in place}
    manifest = yaml.safe_load(beside.read_text())
    manifest["spec"]["env"] = [{"name": name, "value": value} for name, value in place.items()]
    manifest["spec"]["env"] += [{"name": name, "valueFrom": {"secretKeyRef": {"name": "own", "key": name}}} for name in keys]
    beside.write_text(as_yaml(manifest))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    hub.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own", "namespace": "default"}, "stringData": keys})
    try:
        code, _, err = say("submit", beside, "--out", ones_own_keys)
    finally:
        hub.api.delete("/api/v1/namespaces/default/secrets/own")
    assert code == 0, err
    assert not any(name in os.environ for name in s3_server.environment), "the environment is as it was"


def test_a_secret_of_others_sends_no_files_to_a_server_of_theirs(
    hub: Hub,
    beside: Path,
    ones_own_keys: str,
    s3_server: S3,
    say: Say,
    monkeypatch: pytest.MonkeyPatch,
    of_the_author: tuple[str, list[bytes]],
) -> None:
    """Who may write the namespace's Secret gives keys, and nothing else; the server is that of the hub's Clusters."""
    server, heard = of_the_author
    for name in s3_server.environment:
        monkeypatch.delenv(name)
    (beside.parent / "private").write_text("the author's private file")
    hostile = {each["name"]: each["value"] for each in make_hostile_env(server, beside.parent / "private")}
    keys = {name: s3_server.environment[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    secret = {"metadata": {"name": "tuneyard-storage", "namespace": "default"}, "stringData": hostile | keys}
    hub.apply({"apiVersion": "v1", "kind": "Secret", **secret}, storage_of_a_cluster(s3_server.environment))
    before = dict(os.environ)
    try:
        code, _, err = say("submit", beside, "--out", ones_own_keys)
    finally:
        hub.api.delete("/api/v1/namespaces/default/secrets/tuneyard-storage")
    assert code == 0, err
    assert heard == []
    assert dict(os.environ) == before
    assert held(hub)["spec"]["storage"]["output"] == ones_own_keys
