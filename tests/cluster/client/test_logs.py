"""`tuneyard logs`: of whom, with whose keys, from which server."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.builders.hub_jobs import make_attempt, make_failed_attempt, make_manifest, make_running
from tests.clusters.hub_client import Say, create, make_hostile_env, read_until, report, started, storage_of_a_cluster
from tests.servers.installed import S3
from tests.testcluster import Hub

from tuneyard.cluster import open_hub, storage_access
from tuneyard.storage import open_store
from tuneyard.tracking.task_logs import Chunk


@pytest.mark.usefixtures("logged")
def test_logs_of_all_ranks_with_the_jobs_own_credentials(say: Say) -> None:
    code, out, _ = say("logs", "support-bot")
    assert code == 0
    assert out.splitlines() == [
        f"[train {who}] {what} from {who.replace(' ', '-')}" for who in ("driver", "rank 0", "rank 1") for what in ("hello", "more")
    ]
    assert say("logs", "support-bot", "--rank", 1)[1] == "hello from rank-1\nmore from rank-1\n"
    assert say("logs", "support-bot", "--source", "driver", "--tail", 1)[1] == "more from driver\n"


@pytest.mark.usefixtures("logged")
def test_logs_with_the_namespaces_storage_secret(hub: Hub, s3_server: S3, say: Say) -> None:
    values = s3_server.environment
    hub.api.delete("/api/v1/namespaces/default/secrets/s3")
    hub.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tuneyard-storage", "namespace": "default"}, "stringData": values}
    )
    assert say("logs", "support-bot", "--rank", 0)[1] == "hello from rank-0\nmore from rank-0\n"


@pytest.mark.usefixtures("logged")
def test_logs_with_ones_own_credentials(hub: Hub, s3_server: S3, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.api.delete("/api/v1/namespaces/default/secrets/s3")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    assert say("logs", "support-bot", "--rank", 0)[1] == "hello from rank-0\nmore from rank-0\n"


@pytest.mark.parametrize("own_keys", [False, True])
def test_an_author_sends_no_reader_to_a_server_of_his(
    hub: Hub, tmp_path: Path, say: Say, of_the_author: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch, own_keys: bool
) -> None:
    server, heard = of_the_author
    (tmp_path / "private").write_text("the reader's private file")
    if own_keys:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    before = dict(os.environ)
    create(hub, make_manifest(env=make_hostile_env(server, tmp_path / "private")))
    report(hub, make_running() | {"output": "s3://models/support-bot"})
    hub.apply(storage_of_a_cluster({"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_REGION": "us-east-1"}))
    code, out, err = say("logs", "support-bot")
    assert (code, out) == (1, "")
    assert heard == []
    assert dict(os.environ) == before
    assert f"is at {server}: that is what the job says, and no Cluster of the hub names this server" in err
    assert f"AWS_ENDPOINT_URL={server} tuneyard logs support-bot -n default" in err


def test_of_a_jobs_variables_keys_and_region_reach_the_reader(hub: Hub, tmp_path: Path) -> None:
    env = make_hostile_env("http://127.0.0.1:9", tmp_path / "private")
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c", "AWS_PROFILE": "d", "AWS_CONFIG_FILE": "e"}
    hub.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tuneyard-storage", "namespace": "default"}, "stringData": keys})
    create(hub, make_manifest(env=env))
    report(hub, make_running() | {"output": "s3://models/support-bot"})
    hub.apply(storage_of_a_cluster({"AWS_ENDPOINT_URL": "http://127.0.0.1:9/", "AWS_REGION": "us-east-1"}))
    found = storage_access(open_hub(), open_hub().job("support-bot"), {})
    hub.api.delete("/api/v1/namespaces/default/secrets/tuneyard-storage")
    assert found.variables == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9/",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_SESSION_TOKEN": "c",
    }


def test_what_a_job_says_is_shown_and_not_obeyed(hub: Hub, say: Say, tmp_path: Path) -> None:
    """A status is written by whoever runs in the pods, and the messages of jobs ahead of one's own are shown to everybody."""
    clear = "\x1b[2J\x1b]0;owned\x07"
    create(hub)
    failed = make_failed_attempt(1) | {"message": clear, "nextStep": clear, "logTail": clear, "failedNode": clear}
    open_store(str(tmp_path)).create(Chunk("train", 2, "rank-0", 1).path, f"{clear}step 1\n".encode())
    status = make_running() | {"message": clear, "attempts": [failed, make_attempt(2)], "output": str(tmp_path), "artifacts": [clear]}
    report(hub, status)
    for words in (["status"], ["status", "support-bot"], ["why", "support-bot"], ["logs", "support-bot"], ["logs", "support-bot", "--all"]):
        code, out, err = say(*words)
        assert code == 0, err
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", out + err), words
    assert "\\u001b[2J\\u001b]0;owned\\u0007step 1" in out
    assert json.loads(say("status", "support-bot", "-o", "json")[1])["message"] == clear


@pytest.mark.usefixtures("logged")
def test_logs_of_what_there_is_not(hub: Hub, say: Say) -> None:
    code, _, err = say("logs", "support-bot", "--rank", 7)
    assert (code, err) == (2, "error: rank 7 has printed nothing in this attempt\nnext: there are: driver, rank-0, rank-1\n")
    code, out, err = say("logs", "support-bot", "--attempt", 1)
    assert (code, out) == (0, "")
    assert "attempt 1 of train has left no logs; it failed: NodeLost: rank 3 stopped answering\nstep 19 loss 2.10\n" in err
    create(hub, make_manifest("fresh"))
    code, _, err = say("logs", "fresh")
    assert (code, "default/fresh has no logs yet: Pending" in err) == (1, True)
    assert say("logs", "support-bot", "--rank", 0, "--source", "rank-0")[0] == 2


def test_following_goes_on_into_the_next_attempt_and_ends_with_the_job(
    hub: Hub, logged: str, s3_server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started("logs", "support-bot", "-f", "--rank", "0") as following:
        read_until(following.stdout, "more from rank-0")
        for name, value in s3_server.environment.items():
            monkeypatch.setenv(name, value)
        store = open_store(logged)
        store.create(Chunk("train", 2, "rank-0", 3).path, b"lost my node\n")
        attempts = [make_failed_attempt(1), make_failed_attempt(2), make_attempt(3)]
        report(hub, make_running() | {"output": logged, "attempts": attempts})
        read_until(following.stdout, "lost my node")
        store.create(Chunk("train", 3, "rank-0", 1).path, b"resumed\n")
        report(hub, {"phase": "Succeeded", "message": "all tasks succeeded"})
        out, err = following.communicate()
    assert (following.returncode, out) == (0, "resumed\n")
    assert err.endswith("default/support-bot: Succeeded: all tasks succeeded\n")
