"""Finds running jobs whose ranks wait for data, among the listed JobSpecs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuneyard.api.status import Phase
from tuneyard_operators.hub import last_resort

SMALL = 0.01
"""Smallest share of time that is reported. Of thousands of jobs, only the waiting ones get a series in Prometheus."""
Key = tuple[str, str]
"""Namespace and name."""


def data_waits(items: Mapping[Key, Mapping[str, Any]]) -> Iterator[tuple[Key, float]]:
    """Each running job that waits for data for at least 1 % of its time, with that share, 0 to 1."""
    for key, item in items.items():
        status = last_resort.stored_status(item)
        progress = status.get("progress")
        share = progress.get("dataWait") if isinstance(progress, Mapping) else None
        if status.get("phase") == Phase.RUNNING and isinstance(share, int | float) and share >= SMALL:
            yield key, float(share)
