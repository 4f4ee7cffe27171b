"""What the machines of a task did, as one figure for all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PREFIX = "used."
"""Of these figures among those of a result: `used.gpu_utilization`."""


def over_machines(machines: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Each figure over all machines that have it: the mean, and of memory the fullest machine."""
    columns: dict[str, list[float]] = {}
    for machine in machines:
        for name, value in machine.items():
            columns.setdefault(name, []).append(value)
    return {name: max(values) if is_memory(name) else sum(values) / len(values) for name, values in columns.items()}


def is_memory(name: str) -> bool:
    """Whether a figure is an amount of memory, which is full on one machine whatever the others have."""
    return "_memory_" in name


def used(result: Mapping[str, Any]) -> dict[str, float]:
    """The figures of `details.machines` of a task's result, for run history and status: over its whole time, and of memory the peak."""
    details = result.get("details")
    machines = details.get("machines") if isinstance(details, Mapping) else None
    found = over_machines(
        {
            name: figure["most" if is_memory(name) else "mean"]
            for name, figure in machine.items()
            if isinstance(figure, Mapping) and {"mean", "most"} <= figure.keys()
        }
        for machine in (machines if isinstance(machines, list) else [])
        if isinstance(machine, Mapping)
    )
    return {f"{PREFIX}{name}": value for name, value in found.items()}
