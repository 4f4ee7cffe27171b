"""Models whose shapes the catalog has, by name: what can be known of a model without reading a file."""

from __future__ import annotations

import json
from functools import lru_cache

from tuneyard.api import JobSpec, Task, TrainTask
from tuneyard.catalog import ModelShape, known_config, shape_from_config

_REMEMBERED = 4096


def model_origin(job: JobSpec, task: Task) -> Task:
    """The task that names the model which a task trains or scores: itself, an earlier train task, or the process task that makes it.

    An attempt on a member knows the tasks of its own alone: there it is the first of those.
    """
    here = {each.name: each for each in job.spec.tasks}
    source = task
    while (body := source.train or source.score) is not None and body.model.from_task in here:
        source = here[body.model.from_task]
    return source


def model_of(job: JobSpec, task: Task) -> str | None:
    """The name of the model that a train task starts from, through the train tasks before it; None where it is pinned, or made."""
    body = model_origin(job, task).train
    return body.model.name if body is not None and body.model.revision is None else None


def shape_of(name: str) -> ModelShape | None:
    """The shape of a model by its name; None where the catalog lacks it."""
    return _shape(name.lower()) if known_config(name) is not None else None


@lru_cache(maxsize=_REMEMBERED)
def _shape(name: str) -> ModelShape:
    return shape_from_config(known_config(name) or {})


def essence_of(train: TrainTask) -> str:
    """All of a train task that a plan depends on beside the shape of its model, as JSON of a TrainTask: equal tasks have equal plans."""
    values = train.model_dump(mode="json", by_alias=True, include={"method", "objective", "batch", "strategy"})
    values["model"] = {"name": "any", "attention": train.model.attention}
    values["data"] = {"source": "any", "maxLength": train.data.max_length}
    values["optimizer"] = {"name": train.optimizer.name}
    return json.dumps(values, sort_keys=True)
