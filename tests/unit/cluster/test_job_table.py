"""The table of JobSpecs that an API server answers, read as JobSpecs."""

from __future__ import annotations

from typing import Any

from tuneyard.api.schema import columns_of
from tuneyard.cluster.job_table import jobs_of

NAMES = ["Name", *(column.name for column in columns_of("JobSpec")), "Age"]
METADATA = {"name": "bot", "namespace": "maps", "creationTimestamp": "2026-11-26T10:00:00Z"}


def make_table(names: list[str], **cells: Any) -> dict[str, Any]:
    told = [cells.get(name.replace(" ", "_")) for name in names]
    return {"columnDefinitions": [{"name": name} for name in names], "rows": [{"cells": told, "object": {"metadata": METADATA}}]}


def test_cells_become_the_fields_of_their_columns() -> None:
    table = make_table(NAMES, Phase="Running", Cluster="east", GPUs=8, GPU_hours=1.5, Suspended=False, Message="")
    status = {"phase": "Running", "placement": {"cluster": "east", "gpus": 8}, "usage": {"gpuHours": 1.5}}
    assert jobs_of(table) == [{"metadata": METADATA, "spec": {"suspend": False}, "status": status}]


def test_a_table_of_an_older_crd_is_none() -> None:
    assert jobs_of(make_table([name for name in NAMES if name != "Ended"])) is None


def test_columns_of_a_newer_crd_are_left_out() -> None:
    assert jobs_of(make_table(["Colour", *NAMES], Colour="red", Phase="Queued")) == [
        {"metadata": METADATA, "spec": {}, "status": {"phase": "Queued"}}
    ]
