"""Options of `tuneyard plan` that no planned task uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuneyard.api import JobSpec
from tuneyard.cli.plan.placements import Placements


def unused_lines(job: JobSpec, rows: Sequence[Mapping[str, Any]], placements: Placements) -> Iterator[str]:
    """A line for each price of a SKU without a plan, and for `--workers` without a task that has workers."""
    planned = {row["sku"] for row in rows if row.get("sku") is not None}
    for name in sorted(set(placements.prices) - planned):
        advice = f"; add --sku {name}" if planned else ""
        yield f"--price {name} is not used: no task is planned on {name}{advice}"
    if placements.workers is not None and not any(task.train is not None or task.rank is not None for task in job.spec.tasks):
        yield f"--workers {placements.workers} is not used: only train and rank tasks have workers; set resources.instances of score tasks"
