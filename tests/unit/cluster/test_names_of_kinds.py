"""Jobs, clusters and people call a kind of GPU differently, and mean the same."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.builders.hub_jobs import make_held

from tuneyard.api import JobSpec, JobStatus
from tuneyard.cluster import Snapshot, waiting_tasks
from tuneyard.federation import ask_of

NOW = datetime(2026, 11, 23, 14, 0, tzinfo=UTC)


def lab(name: str) -> dict[str, Any]:
    node = {"name": "n1", "sku": name, "gpus": 8, "free": 8}
    skus = [{"name": name, "nodes": 1, "gpusPerNode": 8, "pricePerGpuHour": 2.0}]
    return {"metadata": {"name": "lab"}, "spec": {"skus": skus}, "status": {"healthy": True, "nodes": [node]}}


def test_a_dry_run_places_and_prices_by_any_name() -> None:
    for there, asked in (("MI300X", "mi300x-192gb"), ("mi300x-192gb", "AMD Instinct MI300X"), ("big-cards", "big-cards")):
        held = make_held(None, "new", expectedDuration="10h")
        held["spec"]["tasks"][0]["resources"] = {"workers": 8, "sku": [asked]}
        job = JobSpec.model_validate({key: held[key] for key in ("apiVersion", "kind", "metadata", "spec")})
        asks = [ask_of(job, NOW.timestamp(), task, JobStatus()) for task in waiting_tasks(job, JobStatus())]
        snapshot = Snapshot((lab(there),), (), ())
        (found,) = snapshot.outlook(asks, NOW)
        assert found.place is not None
        assert snapshot.cost(found.place) == round(found.place.seconds / 3600 * 8 * 2.0, 2) > 0
