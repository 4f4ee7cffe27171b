"""Admission of a job at a venue: one answer for `validate`, `submit`, the hub, a local run and the pods of an attempt."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from tuneyard.admission.on_machine import ShapeOf, refusals_on
from tuneyard.admission.on_members import refusals_anywhere, refusals_of_hub
from tuneyard.admission.refusal import Refusal
from tuneyard.admission.shapes import of_origins
from tuneyard.admission.unfilled import unfilled
from tuneyard.admission.venues import Hub, Machine, Venue
from tuneyard.api import Device, JobSpec
from tuneyard.catalog import known_devices, shape_from_config


def admit(
    job: JobSpec,
    venue: Venue,
    *,
    devices: Mapping[str, Device] | None = None,
    names: Collection[str] | None = None,
    configs: Mapping[str, Mapping[str, Any]] | None = None,
    shape_of: ShapeOf = shape_from_config,
) -> list[Refusal]:
    """All obstacles to a job at a venue, in the order of its tasks. Empty: no obstacle is known. No file is read.

    `devices`: facts of SKUs by name; default: the catalog's. `names`: tasks that run on the machine; default: all. `configs`: config.json
    of the model that a task names, by task name, where it has been read. `shape_of` gives the shape of one; a machine with
    transformers can pass `catalog.built.model_shape_of`, which knows more models than the catalog's families.
    """
    tasks = [task for task in job.spec.tasks if names is None or task.name in names]
    origins = of_origins(job, tasks, configs or {})
    if isinstance(venue, Machine):
        alone = job.model_copy(update={"spec": job.spec.model_copy(update={"tasks": tasks})})
        found = [replace(each, reason=str(each)) for each in unfilled(job)]  # a machine's reasons name their place themselves
        return [*found, *refusals_on(alone, venue, origins, shape_of)]
    if devices is None:
        devices = known_devices(sku for task in job.spec.tasks for sku in task.resources.sku)
    types = {name: str(config["model_type"]) for name, config in origins.items() if config.get("model_type")}
    found = [*unfilled(job), *refusals_anywhere(job, devices, types)]
    return [*found, *refusals_of_hub(job)] if isinstance(venue, Hub) else found
