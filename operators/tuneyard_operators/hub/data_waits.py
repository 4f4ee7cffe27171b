"""Running jobs whose ranks wait for data, from the JobSpecs that the hub has listed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuneyard.api.status import Phase
from tuneyard_operators.hub import last_resort

SMALL = 0.01
"""Share of the time below which a wait is not told: of thousands of jobs only those that wait have a series in Prometheus."""
Key = tuple[str, str]
"""Namespace and name."""


def data_waits(items: Mapping[Key, Mapping[str, Any]]) -> Iterator[tuple[Key, float]]:
    """Job and share of the time, 0 to 1, of each running job that waits for more than 1 % of it."""
    for key, item in items.items():
        status = last_resort.stored_status(item)
        progress = status.get("progress")
        share = progress.get("dataWait") if isinstance(progress, Mapping) else None
        if status.get("phase") == Phase.RUNNING and isinstance(share, int | float) and share >= SMALL:
            yield key, float(share)
