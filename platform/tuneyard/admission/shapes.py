"""Shapes of models by name, from the catalog, without reading a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from tuneyard.api import JobSpec, Task, TrainTask
from tuneyard.catalog import ModelShape, known_config, shape_from_config

_REMEMBERED = 4096
Configs = Mapping[str, Mapping[str, Any]]
"""config.json of models, by the name of a task, where it was read."""


def model_origin(job: JobSpec, task: Task) -> Task:
    """The task that names the model which a task trains or scores: itself, an earlier train task, or the process task that makes the model.

    An attempt on a member has only its own tasks: there the first of these stands for the origin.
    """
    here = {each.name: each for each in job.spec.tasks}
    source = task
    while (body := source.train or source.score) is not None and body.model.from_task in here:
        source = here[body.model.from_task]
    return source


def of_origins(job: JobSpec, tasks: Iterable[Task], configs: Configs) -> dict[str, Mapping[str, Any]]:
    """The config.json of the model that each task starts from. `configs`: of models that tasks name; tasks without one are left out."""
    return {task.name: configs[origin] for task in tasks if (origin := model_origin(job, task).name) in configs}


def model_of(job: JobSpec, task: Task) -> str | None:
    """The name of the model that a train task starts from, through the train tasks before it. None: the model is pinned to a revision, or
    another task makes it."""
    body = model_origin(job, task).train
    return body.model.name if body is not None and body.model.revision is None else None


def shape_of(name: str) -> ModelShape | None:
    """The shape of a model by its name. None: the catalog lacks the model."""
    return _shape(name.lower()) if known_config(name) is not None else None


@lru_cache(maxsize=_REMEMBERED)
def _shape(name: str) -> ModelShape:
    return shape_from_config(known_config(name) or {})


def essence_of(train: TrainTask) -> str:
    """The fields of a train task that determine its plan, beside the shape of its model, as JSON of a TrainTask. Tasks with equal fields
    have equal plans."""
    values = train.model_dump(mode="json", by_alias=True, include={"method", "objective", "batch", "strategy"})
    values["model"] = {"name": "any", "attention": train.model.attention}
    values["data"] = {"source": "any", "maxLength": train.data.max_length}
    values["optimizer"] = {"name": train.optimizer.name, "states": train.optimizer.states}
    return json.dumps(values, sort_keys=True)
