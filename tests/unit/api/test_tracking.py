"""The groups of fields of `spec.tracking`."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from tests.builders.reports import make_job


@pytest.mark.parametrize(
    ("tracking", "reason"),
    [
        ({"wandb": {}}, "project"),
        ({"wandb": {"project": "maps/bot"}}, "project"),
        ({"wandb": {"project": "p", "tags": ["x" * 65]}}, "tags"),
        ({"wandb": {"project": "p", "apiKey": "secret"}}, "apiKey"),
        ({"mlflow": {}}, "experiment"),
        ({"mlflow": {"experiment": "e", "uri": "mlruns"}}, "is no URI"),
        ({"mlflow": {"experiment": "e", "uri": "https://me:hidden@mlflow.example.com"}}, "holds a password"),
        ({"mlflow": {"experiment": "e", "uri": "http://[::1@x:p@"}}, "password"),
        ({"tensorboard": {"folder": "x"}}, "folder"),
        ({"neptune": {}}, "neptune"),
    ],
)
def test_what_no_tracker_can_use_is_refused(tracking: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        make_job(tracking=tracking)


@pytest.mark.parametrize("uri", ["https://mlflow.example.com/x", "sqlite:////data/mlflow.db", "databricks", "file:///mlruns"])
def test_any_tracking_uri_of_mlflow_is_taken(uri: str) -> None:
    job = make_job(tracking={"mlflow": {"experiment": "e", "uri": uri}})
    assert job.spec.tracking.mlflow is not None
    assert job.spec.tracking.mlflow.uri == uri
