"""MLflow with its real client: a database, a server that records, and servers in trouble."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.servers.recording_server import Sent, recording_server
from tests.servers.tracked_job import NAMES, SECRET, STEPS, run_tracked


def asking(uri: str) -> dict[str, Any]:
    return {"mlflow": {"experiment": "support-bot", "uri": uri}}


def runs(uri: str) -> list[Any]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("support-bot")
    assert experiment is not None
    return [(client, run) for run in client.search_runs([experiment.experiment_id])]


def assert_all_is_there(uri: str) -> None:
    ((client, run),) = runs(uri)
    assert (run.info.run_name, run.info.status) == ("support-bot", "FINISHED")
    assert set(run.data.metrics) >= NAMES
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    assert [each.step for each in losses] == list(range(1, STEPS + 1))
    assert run.data.params["train/plan/zero"] == "3"
    assert run.data.params["job/env/API_TOKEN/value"] == "***"
    assert run.data.tags["train/status"] == "succeeded"
    assert run.data.tags["team"] == "default"


def test_a_database_gets_all_metrics_parameters_and_tags_and_the_end(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert run_tracked(tmp_path, asking(uri)) == ["succeeded"]
    assert_all_is_there(uri)


def refuses(_: Sent) -> tuple[int, Any]:
    return 401, {"error_code": "UNAUTHENTICATED", "message": "no such user"}


def fails(_: Sent) -> tuple[int, Any]:
    return 500, {"error_code": "INTERNAL_ERROR", "message": "no disk left"}


IMPATIENT = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "2", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}


@pytest.mark.parametrize("answer", [refuses, fails, None], ids=["the token is refused", "every request fails", "no answer"])
def test_a_server_that_takes_nothing_is_one_warning(answer: Any, tmp_path: Path) -> None:
    with recording_server(answer or fails, hang=lambda _sent: answer is None) as recorded:
        lines = run_tracked(tmp_path, asking(recorded.url), MLFLOW_TRACKING_TOKEN=SECRET, **IMPATIENT)

    assert lines[-1] == "succeeded"
    assert len(lines) == 2, lines
    assert lines[0].startswith("warned: MLflow gets no metrics:")
    assert SECRET not in str(lines)


def test_measurements_wait_for_a_server_that_fails_now_and_then(tmp_path: Path) -> None:
    failures = iter([True])

    def sometimes(sent: Sent) -> tuple[int, Any]:
        if sent.path.endswith("log-batch") and sent.body.get("metrics") and next(failures, False):
            return fails(sent)
        experiment, run = {"experiment_id": "1", "name": "support-bot"}, {"run_id": "r", "run_uuid": "r", "status": "RUNNING"}
        return 200, {"experiment": experiment, "run": {"info": run}}

    with recording_server(sometimes) as recorded:
        lines = run_tracked(tmp_path, asking(recorded.url), MLFLOW_HTTP_REQUEST_MAX_RETRIES="0")

    sent = [metric for body in recorded.bodies("log-batch") for metric in body.get("metrics", [])]
    assert {metric["step"] for metric in sent if metric["key"] == "train/loss"} == set(range(1, STEPS + 1))
    assert lines == ["succeeded"]
    assert recorded.bodies("runs/update")[-1]["status"] == "FINISHED"
