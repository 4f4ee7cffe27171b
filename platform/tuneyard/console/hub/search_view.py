"""The search of a tune task as the status of its job holds it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.console.task_views import task_views

_TABLES = ("tiles", "charts", "trials", "effects")


def search_of(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Tiles, charts and tables of a search, from the figures that the task has reported. Empty before the first trial."""
    if not metrics.get("trials") and "gain" not in metrics:
        return {}
    view = task_views({"search": {"kind": "tune", **metrics}})["search"]
    return {name: view[name] for name in _TABLES}
