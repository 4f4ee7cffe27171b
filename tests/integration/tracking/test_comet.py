"""Comet with a server that records, without one, and without a key: all metrics, an archive, or a warning; never a failed job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.servers.installed import free_port
from tests.servers.recording_server import RecordingServer, Sent, recording_server
from tests.servers.tracked_job import NAMES, SECRET, STEPS, run_tracked

COMET = {"comet": {"project": "support-bot", "tags": ["nightly"]}}
IMPATIENT = {"COMET_GET_OR_ADD_EXPERIMENT_RETRY_TOTAL": "1", "COMET_HTTP_SESSION_RETRY_TOTAL": "1", "COMET_TIMEOUT_HTTP": "2"}
"""Fewer retries than Comet's own, so that tests end sooner."""
REFUSED = 90212
"""Comet's code for an unknown key."""


def comet_server(sent: Sent) -> tuple[int, Any]:
    """Answers as Comet's server does, as far as its client reads them."""
    if sent.path.endswith("logger/add/run"):
        return 200, {"runId": "run-1", "project_id": "project-1", "focusUrl": "http://127.0.0.1/", "lastOffset": 0, "name": "a-name"}
    if sent.path.endswith("status-report/update"):
        return 200, {"is_alive_beat_duration_millis": 10_000, "gpu_monitor_interval_millis": 60_000}
    return 200, {"version": "9.9.9"}


def run_with_comet(folder: Path, **environment: str) -> list[str]:
    return run_tracked(folder, COMET, **{**IMPATIENT, **environment})


def run_online(folder: Path, server: RecordingServer, **environment: str) -> list[str]:
    return run_with_comet(folder, COMET_API_KEY=SECRET, COMET_URL_OVERRIDE=f"{server.url}/clientlib/", **environment)


def messages(archive: Path) -> list[dict[str, Any]]:
    with zipfile.ZipFile(archive) as content:
        return [json.loads(line) for line in content.read("messages.json").decode().splitlines()]


def received_metrics(server: RecordingServer) -> list[dict[str, Any]]:
    return [value for body in server.bodies("experiment/metric") for value in body["values"]]


def assert_all_is_there(server: RecordingServer) -> None:
    metrics = received_metrics(server)
    losses = {metric["step"] for metric in metrics if metric["metricName"] == "train/loss"}
    assert losses == set(range(1, STEPS + 1))
    assert {metric["metricName"] for metric in metrics} >= NAMES
    parameters = {value["parameterName"] for body in server.bodies("experiment/parameter") for value in body["values"]}
    assert {"train/plan/zero", "job/tasks/train/train/steps"} <= parameters
    assert set(server.bodies("tags/add-tags-to-experiment")[0]["addedTags"]) == {"nightly", "tuneyard", "team:default"}


def test_a_server_gets_all_metrics_parameters_and_tags_and_the_end(tmp_path: Path) -> None:
    with recording_server(comet_server) as server:
        assert run_online(tmp_path, server) == ["succeeded"]

    assert_all_is_there(server)
    assert "written-value" not in json.dumps([sent.body for sent in server.requests])
    others = {body["key"]: body["value"] for body in server.bodies("experiment/log-other")}
    assert others | {"Name": "support-bot", "status": "succeeded", "train/status": "succeeded", "message": "ended as told"} == others
    assert [body["is_alive"] for body in server.bodies("status-report/update")][-1] is False
    assert not list((tmp_path / "comet").glob("*.zip"))


def test_without_a_key_an_archive_is_written_and_comets_own_command_uploads_it(tmp_path: Path) -> None:
    assert run_with_comet(tmp_path) == ["succeeded"]

    (archive,) = (tmp_path / "comet").glob("*.zip")
    payloads = [message["payload"] for message in messages(archive)]
    metrics = [payload["metric"] for payload in payloads if isinstance(payload, dict) and "metric" in payload]
    assert Counter(metric["metricName"] for metric in metrics)["train/loss"] == STEPS
    assert "written-value" not in json.dumps(payloads)

    with recording_server(comet_server) as server:
        upload = subprocess.run(
            [str(Path(sys.executable).parent / "comet"), "upload", str(archive)],
            env={**os.environ, "HOME": str(tmp_path), "COMET_API_KEY": SECRET, "COMET_URL_OVERRIDE": f"{server.url}/clientlib/"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert upload.returncode == 0, upload.stdout + upload.stderr
    assert_all_is_there(server)


def refuses(_: Sent) -> tuple[int, Any]:
    return 400, {"sdk_error_code": REFUSED, "msg": "unknown key"}


def fails(_: Sent) -> tuple[int, Any]:
    return 500, {"msg": "internal error"}


@pytest.mark.parametrize("answer", [refuses, fails], ids=["the key is refused", "every request fails"])
def test_a_server_that_takes_nothing_leaves_an_archive_and_one_warning(answer: Any, tmp_path: Path) -> None:
    with recording_server(answer) as server:
        lines = run_online(tmp_path, server)

    assert lines[-1] == "succeeded"
    assert len(lines) == 2, lines
    assert "comet upload" in lines[0]
    assert SECRET not in str(lines)
    assert len(list((tmp_path / "comet").glob("*.zip"))) == 1


def test_a_server_that_cannot_be_reached_leaves_an_archive_and_a_warning(tmp_path: Path) -> None:
    lines = run_with_comet(tmp_path, COMET_API_KEY=SECRET, COMET_URL_OVERRIDE=f"http://127.0.0.1:{free_port()}/clientlib/")

    assert lines[-1] == "succeeded"
    assert any("comet upload" in line or "Comet did not take" in line for line in lines)
    assert SECRET not in str(lines)


def test_a_server_that_fails_after_the_start_leaves_an_archive_of_the_run_and_one_warning(tmp_path: Path) -> None:
    def begins(sent: Sent) -> tuple[int, Any]:
        return comet_server(sent) if sent.path.endswith(("logger/add/run", "status-report/update", "isAlive/ver")) else (500, {})

    with recording_server(begins) as server:
        lines = run_online(tmp_path, server)

    (archive,) = (tmp_path / "comet").glob("*.zip")
    assert lines[-1] == "succeeded"
    assert [line for line in lines if "warned" in line] == [
        f"warned: Comet's server was lost; send the metrics with `comet upload --force-reupload {archive}`"
    ]
    assert "train/loss" in json.dumps(messages(archive))
    assert SECRET not in str(lines)


@pytest.mark.parametrize("answered", [(), ("isAlive/ver", "logger/add/run")], ids=["nothing", "the start of the experiment"])
def test_a_server_that_stops_answering_does_not_keep_the_job(answered: tuple[str, ...], tmp_path: Path) -> None:
    with recording_server(comet_server, hang=lambda sent: not sent.path.endswith(answered or "-")) as server:
        lines = run_online(tmp_path, server)

    assert lines[-1] == "succeeded"
    assert len(lines) == 2, lines
    assert "comet upload" in lines[0]
    assert len(list((tmp_path / "comet").glob("*.zip"))) == 1


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    lines = run_with_comet(tmp_path / "file")

    assert lines[-1] == "succeeded"
    assert any("Comet gets no metrics" in line for line in lines)
