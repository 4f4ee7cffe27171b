"""Use by month and team, of several namespaces, and of hubs of earlier versions."""

from __future__ import annotations

from tuneyard.console.hub.spending import Spent, spent_of


def test_rows_of_namespaces_are_added_and_an_earlier_hub_has_no_cost_of_endpoints() -> None:
    rows = [
        {"month": "2026-10", "team": "maps", "jobs": 1, "gpu_hours": 2.0, "cost": 5.0, "endpoint_cost": 0.25},
        {"month": "2026-10", "team": "maps", "jobs": 2, "gpu_hours": 0.0, "cost": 0.0, "endpoint_cost": 0.5},
        {"month": "2026-11", "team": "maps", "jobs": 1, "gpu_hours": 1.0, "cost": 2.5},
    ]

    assert spent_of(rows) == [Spent("2026-11", "maps", 1, 1.0, 2.5, 0.0), Spent("2026-10", "maps", 3, 2.0, 5.0, 0.75)]
