"""Weights & Biases with its real client: against a server that records, offline, and with servers in trouble."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.servers.installed import free_port
from tests.servers.recording_server import RecordingServer, Sent, recording_server
from tests.servers.tracked_job import NAMES, SECRET, STEPS, run_tracked

WANDB = {"wandb": {"project": "support-bot", "tags": ["nightly"]}}


def wandb_server(sent: Sent) -> tuple[int, Any]:
    """Answers as the server does, as far as its client reads them."""
    if not sent.path.endswith("/graphql"):
        return 200, {}
    operation = sent.body["operationName"]
    if operation == "UpsertBucket":
        project = {"id": "p", "name": "support-bot", "entity": {"id": "e", "name": "maps"}}
        bucket = {"id": "b", "name": sent.body["variables"]["name"], "displayName": "support-bot", "config": "{}", "project": project}
        return 200, {"data": {"upsertBucket": {"bucket": {**bucket, "historyLineCount": 0}, "inserted": True}}}
    if operation == "CreateRunFiles":
        host = sent.headers["Host"]
        files = [{"name": name, "uploadUrl": f"http://{host}/upload/{name}"} for name in sent.body["variables"]["files"]]
        return 200, {"data": {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}}
    return 200, {"data": {}}


def history(server: RecordingServer) -> list[dict[str, Any]]:
    """The rows that the server was sent, in order."""
    files = [body.get("files") or {} for body in server.bodies("file_stream")]
    return [json.loads(line) for each in files for line in each.get("wandb-history.jsonl", {}).get("content", [])]


def summary(server: RecordingServer) -> dict[str, Any]:
    return dict(server.bodies("upload/wandb-summary.json")[-1])


def assert_all_is_there(server: RecordingServer) -> None:
    rows = history(server)
    losses = [(row["train/step"], row["train/loss"]) for row in rows if "train/loss" in row]
    assert [step for step, _ in losses] == list(range(1, STEPS + 1))
    assert {name for row in rows for name in row} | _flat(summary(server)) >= NAMES
    config = server.bodies("upload/config.yaml")[-1]
    assert "train/plan/zero" in config
    assert "job/tasks/train/train/steps" in config
    upserts = [sent.body["variables"] for sent in server.requests if sent.path.endswith("graphql") and "UpsertBucket" in sent.body["query"]]
    assert {"nightly", "tuneyard", "team:default"} in [set(each.get("tags") or []) for each in upserts]
    assert {"support-bot"} == {each["displayName"] for each in upserts if each.get("displayName")}
    assert "written-value" not in json.dumps([sent.body for sent in server.requests])


def _flat(values: dict[str, Any], prefix: str = "") -> set[str]:
    return {
        name for key, value in values.items() for name in (_flat(value, f"{prefix}{key}/") if isinstance(value, dict) else {prefix + key})
    }


def run_online(folder: Path, url: str) -> list[str]:
    return run_tracked(folder, WANDB, WANDB_API_KEY=SECRET, WANDB_BASE_URL=url, WANDB_INIT_TIMEOUT="3")


def test_a_server_gets_all_metrics_parameters_and_tags_and_the_end(tmp_path: Path) -> None:
    with recording_server(wandb_server) as server:
        assert run_online(tmp_path, server.url) == ["succeeded"]

    assert_all_is_there(server)
    assert summary(server)["status"] == "succeeded"
    assert [body for body in server.bodies("file_stream") if body.get("complete")][-1]["exitcode"] == 0
    assert SECRET not in "".join(file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file())


def test_without_a_key_a_run_is_written_and_wandbs_own_command_uploads_it(tmp_path: Path) -> None:
    assert run_tracked(tmp_path, WANDB) == ["succeeded"]

    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    with recording_server(wandb_server) as server:
        done = subprocess.run(
            [str(Path(sys.executable).parent / "wandb"), "sync", str(run)],
            env={**os.environ, "HOME": str(tmp_path), "WANDB_API_KEY": SECRET, "WANDB_BASE_URL": server.url},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert_all_is_there(server)


def refuses(_: Sent) -> tuple[int, Any]:
    return 401, {"errors": [{"message": "user is not logged in"}]}


@pytest.mark.parametrize("answer", [refuses, None], ids=["the key is refused", "nobody listens"])
def test_a_server_that_takes_nothing_leaves_a_run_and_one_warning(answer: Any, tmp_path: Path) -> None:
    with recording_server(answer or refuses) as server:
        lines = run_online(tmp_path, server.url if answer else f"http://127.0.0.1:{free_port()}")

    assert lines[-1] == "succeeded"
    assert len(lines) == 2, lines
    assert "wandb sync" in lines[0]
    assert SECRET not in str(lines)
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 1


def test_a_server_that_stops_answering_leaves_a_run_that_can_be_sent(tmp_path: Path) -> None:
    with recording_server(wandb_server, hang=lambda sent: sent.path.endswith("file_stream")) as server:
        lines = run_tracked(tmp_path, WANDB, WANDB_API_KEY=SECRET, WANDB_BASE_URL=server.url, WANDB_FINISH_TIMEOUT="3")

    (run,) = (tmp_path / "wandb").glob("run-*")
    assert lines == [f"warned: Weights & Biases has not taken all metrics; send them with `wandb sync {run}`", "succeeded"]
