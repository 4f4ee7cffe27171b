"""The table of JobSpecs that an API server answers, read as facts about each."""

from __future__ import annotations

from typing import Any

from tuneyard.api.schema import columns_of
from tuneyard.cluster.job_table import facts_of, facts_of_table

NAMES = ["Name", *(column.name for column in columns_of("JobSpec")), "Age"]
METADATA = {"name": "bot", "namespace": "maps", "creationTimestamp": "2026-11-26T10:00:00Z"}
KNOWN = {"Name": "bot", "Namespace": "maps", "Created": "2026-11-26T10:00:00Z"}


def make_table(names: list[str], **cells: Any) -> dict[str, Any]:
    known = {**KNOWN, **{name.replace("_", " "): value for name, value in cells.items()}}
    return {"columnDefinitions": [{"name": name} for name in names], "rows": [{"cells": [known.get(name) for name in names]}]}


def given(facts: Any) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value not in (None, "")}


def test_the_facts_of_a_table_are_those_of_the_whole_object() -> None:
    (listed,) = facts_of_table(make_table(NAMES, Phase="Running", Cluster="east", GPUs=8, GPU_hours=1.5, Suspended=False, Message="")) or []
    status = {"phase": "Running", "placement": {"cluster": "east", "gpus": 8}, "usage": {"gpuHours": 1.5}, "message": ""}
    assert given(listed) == given(facts_of({"metadata": METADATA, "spec": {"suspend": False}, "status": status}))
    assert given(listed)["GPU hours"] == 1.5
    assert given(facts_of({"metadata": METADATA})) == KNOWN, "before the hub has looked at it"


def test_a_table_of_an_older_crd_is_none() -> None:
    assert facts_of_table(make_table([name for name in NAMES if name != "Holds"])) is None


def test_columns_of_a_newer_crd_are_no_obstacle() -> None:
    (listed,) = facts_of_table(make_table(["Colour", *NAMES], Colour="red", Phase="Queued")) or []
    assert listed["Phase"] == "Queued"


def test_a_job_holds_the_cluster_of_its_oldest_attempt_that_is_not_cleaned_up() -> None:
    attempts = [
        {"placement": {"cluster": "west"}, "cleaned": True},
        {"number": 2, "cleaned": False},
        {"placement": {"cluster": "east"}, "cleaned": False},
        {"placement": {"cluster": "north"}, "cleaned": False},
    ]
    assert facts_of({"status": {"attempts": attempts}})["Holds"] == "east"
    assert facts_of({"status": {"attempts": attempts[:2]}})["Holds"] is None
