"""MLflow: one run per job, on a tracking server or in its database."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from tuneyard.api import Mlflow
from tuneyard.tracking.trackers.tracker import TrackedRun, TrackerKind

MOST_KEPT = 20_000
"""Measurements that wait for a server that is away; the oldest are dropped."""
_LAST_PAUSES_S = (1.0, 5.0)
_A_BATCH = 1_000
_PARAMETERS_A_BATCH = 100
_STATUS = {"succeeded": "FINISHED", "stopped": "KILLED"}


class MlflowTracker:
    """A run of MLflow. Each request of its client waits for the answer, so measurements are sent in batches."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self._run_id = run_id
        self._parameters: dict[str, str] = {}
        self._waiting: list[Any] = []

    def parameters(self, values: Mapping[str, Any]) -> None:
        """MLflow never changes a parameter: a changed value becomes a tag of the same name."""
        from mlflow.entities import Param

        texts = {name: str(value) for name, value in values.items()}
        new = [Param(name, text) for name, text in texts.items() if name not in self._parameters]
        for first in range(0, len(new), _PARAMETERS_A_BATCH):
            self._client.log_batch(self._run_id, params=new[first : first + _PARAMETERS_A_BATCH])
        self._parameters |= {param.key: param.value for param in new}
        for name, text in texts.items():
            if self._parameters[name] != text:
                self._client.set_tag(self._run_id, name, text)

    def metrics(self, values: Mapping[str, float], *, axis: str, step: int | None) -> None:  # noqa: ARG002 -- each metric has its own steps
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        self._waiting += [Metric(name, value, now_ms, step or 0) for name, value in values.items()]
        del self._waiting[:-MOST_KEPT]

    def note(self, name: str, text: str) -> None:
        self._client.set_tag(self._run_id, name, text)

    def flush(self) -> None:
        while self._waiting:
            self._client.log_batch(self._run_id, metrics=self._waiting[:_A_BATCH])
            del self._waiting[:_A_BATCH]

    def _flush_patiently(self) -> None:
        """The last chance of measurements that wait."""
        for pause_s in _LAST_PAUSES_S:
            try:
                self.flush()
            except Exception:  # noqa: BLE001 -- MLflow raises whatever its network code and its server raise
                time.sleep(pause_s)
        self.flush()

    def end(self, status: str) -> None:
        try:
            self._flush_patiently()
        finally:
            self._client.set_terminated(self._run_id, _STATUS.get(status, "FAILED"))


def _open(settings: Mlflow, run: TrackedRun) -> MlflowTracker:
    client = _quiet_client(settings.uri)
    found = client.get_experiment_by_name(settings.experiment)
    experiment = found.experiment_id if found is not None else _made(client, settings.experiment)
    tags = {"mlflow.source.name": "tuneyard", "team": run.team}
    started = client.create_run(experiment, run_name=run.job, tags=tags)
    return MlflowTracker(client, started.info.run_id)


def _made(client: Any, experiment: str) -> str:
    """The id of a new experiment; of another job's, if one has made it meanwhile."""
    from mlflow.exceptions import MlflowException

    try:
        return str(client.create_experiment(experiment))
    except MlflowException:
        found = client.get_experiment_by_name(experiment)
        if found is None:
            raise
        return str(found.experiment_id)


def _quiet_client(uri: str | None) -> Any:
    """MLflow's client, which gives up a request after 10 s and two retries, without reports to its makers."""
    for name, value in {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    }.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return MlflowClient(tracking_uri=uri)


def _refusal(settings: Mlflow, environment: Mapping[str, str]) -> tuple[str, str] | None:
    if settings.uri or environment.get("MLFLOW_TRACKING_URI"):
        return None
    return (
        "tracking.mlflow names no uri, and MLFLOW_TRACKING_URI is not set",
        "set tracking.mlflow.uri, such as https://mlflow.example.com, or the variable",
    )


KIND = TrackerKind(title="MLflow", extra="mlflow", open=_open, refusal=_refusal)
