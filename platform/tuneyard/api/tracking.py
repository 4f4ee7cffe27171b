"""Trackers of experiments that a job reports to: one group of fields each.

The clients behind them are in `tuneyard.tracking.trackers`, whose table has an entry per field of `Tracking`.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator

from tuneyard.api.base import Fields


class Comet(Fields):
    """Metrics go to Comet: online with COMET_API_KEY, else into an offline archive that can be uploaded later."""

    project: str = Field(min_length=1, description="Comet project that the experiments go to")
    workspace: str | None = Field(default=None, description="Comet workspace; default: that of the API key")
    tags: list[str] = Field(default_factory=list, description="tags of the experiments")


class Wandb(Fields):
    """Metrics go to Weights & Biases: online with WANDB_API_KEY, else into an offline run that can be synchronised later."""

    project: str = Field(
        min_length=1,
        max_length=128,
        pattern=r"^([^/\\#?%:]|\{\{[^{}]*\}\})*$",  # the format of an expression has a %
        description="project that the runs go to",
    )
    entity: str | None = Field(default=None, min_length=1, description="user or team that owns the project; default: that of the API key")
    tags: list[Annotated[str, StringConstraints(min_length=1, max_length=64)]] = Field(default_factory=list, description="tags of the runs")


class Mlflow(Fields):
    """Metrics go to an MLflow server, or to the database of one."""

    experiment: str = Field(min_length=1, max_length=500, description="MLflow experiment that the runs go to; made if there is none")
    uri: str | None = Field(
        default=None,
        min_length=1,
        description="tracking URI, such as https://mlflow.example.com; default: MLFLOW_TRACKING_URI. Credentials are read from "
        "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
    )

    @field_validator("uri")
    @classmethod
    def _is_a_uri(cls, uri: str | None) -> str | None:
        """MLflow takes other texts for folders below its working directory."""
        if uri is not None and "://" not in uri and not uri.startswith("databricks"):
            raise ValueError("is no URI: write https://HOST, or sqlite:////FILE")
        if uri is not None and _has_password(uri):
            raise ValueError("holds a password: leave it out, and set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD")
        return uri


def _has_password(uri: str) -> bool:
    try:
        return urlsplit(uri).password is not None
    except ValueError:
        return "@" in uri


class Tensorboard(Fields):
    """Metrics go to event files in `tensorboard/` of the job's output."""


class Tracking(Fields):
    """Trackers that get the job's metrics, beside the report and the run history."""

    comet: Comet | None = None
    wandb: Wandb | None = None
    mlflow: Mlflow | None = None
    tensorboard: Tensorboard | None = None
