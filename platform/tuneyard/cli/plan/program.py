"""The row of a program in `tuneyard plan`: its layout, and the memory and speed of its latest run with this layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api import CPU, BadInput, JobSpec, Task, check_task
from tuneyard.catalog import rules_device
from tuneyard.cli.output import duration_text, money_text, rounded_text
from tuneyard.cli.plan.placements import Placements, kind_of, placed_on
from tuneyard.cli.plan.plan_fields import plan_fields
from tuneyard.planning import NOT_PREDICTED, Plan, plan_of_program
from tuneyard.runtime.train.past import Measured


def program_row(job: JobSpec, task: Task, sku: str, workers: int, placements: Placements) -> dict[str, Any]:
    """The layout of a program, or why it cannot run there. The code of the program is not read, so nothing is predicted: figures are those
    of its latest run in history. `fits` is None: memory is not compared with the device.
    """
    assert task.train is not None
    head = {"task": task.name, "kind": "train", "sku": sku, "workers": workers}
    broken = check_task(placed_on(task, sku, workers), device=rules_device(sku))
    if broken:
        return {**head, "fits": False, "reason": f"{sku}: {broken[0].reason}"}
    try:
        found = plan_of_program(task.train, kind_of(sku), workers)
    except BadInput as error:
        return {**head, "fits": False, "reason": f"{sku}: {error.cause}; {error.next_step}"}
    layout = f"{workers} x {sku}, zero {found.zero}, {found.precision}, micro-batch {found.micro_batch} x {found.grad_accum}"
    measured = placements.past_programs.like(job, task, found)
    fields = plan_fields(found) | {"memory_gb": None, "fits": None}
    if measured is None:
        return {**head, **fields, "reason": f"{task.name}: {layout}; {NOT_PREDICTED}"}
    figures = _figures(task, found, measured, placements.prices)
    return {**head, **fields, **figures, "reason": f"{task.name}: {layout}; {_words(figures)}"}


def _figures(task: Task, found: Plan, measured: Measured, prices: Mapping[str, float]) -> dict[str, Any]:
    """Measured memory and speed. Duration and cost: where the task gives its steps."""
    assert task.train is not None
    price = prices.get(found.sku)
    per_hour = price * (1 if found.sku == CPU.sku else found.workers) if price is not None else None
    duration_s = task.train.steps * found.global_batch / measured.rows_per_s if task.train.steps is not None else None
    return {
        "measured_memory_gb": measured.memory_gb,
        "rows_per_s": measured.rows_per_s,
        "steps": {"likely": task.train.steps, "low": task.train.steps, "high": task.train.steps} if task.train.steps else None,
        "duration_s": duration_s,
        "cost": duration_s / 3600 * per_hour if duration_s is not None and per_hour is not None else None,
        "cost_per_hour": per_hour,
    }


def _words(figures: Mapping[str, Any]) -> str:
    took = f"{rounded_text(figures['measured_memory_gb'])} GB a rank and {rounded_text(figures['rows_per_s'])} rows/s"
    parts = [f"its latest run with this layout took {took}, measured, not predicted"]
    if figures["duration_s"] is not None:
        cost = f", for {money_text(figures['cost'])}" if figures["cost"] is not None else ""
        parts.append(f"{figures['steps']['likely']:,} steps in about {duration_text(figures['duration_s'])}{cost}")
    return "; ".join(parts)
