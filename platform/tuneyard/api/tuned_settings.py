"""Settings of a train or rank task that a tune task may choose, by their paths in the JobSpec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from tuneyard.api.errors import BadInput
from tuneyard.api.tasks import Task

WORKERS = "resources.workers"
MICRO_BATCH = "batch.micro"
DATA_WORKERS = "data.workers"
TUNABLE = (
    *("strategy.zero", "strategy.recompute", "strategy.precision", "strategy.liger", "strategy.tensorParallel"),
    *("strategy.offload.optimizer", "strategy.offload.parameters", MICRO_BATCH, "model.attention", "data.pack", DATA_WORKERS, WORKERS),
)
"""Paths below `train` (and `resources.workers`). Only precision and packing change what is learned: they are searched only if the JobSpec
lists their values.
"""
SHARDING, EXCHANGE = "tables.sharding", "tables.exchange"
TUNABLE_OF_RANKERS = (
    *("strategy.zero", "strategy.recompute", "strategy.precision", "strategy.shardWithin", "strategy.quantisedAllReduce"),
    *("strategy.offload.optimizer", "strategy.offload.parameters", MICRO_BATCH, SHARDING, EXCHANGE, "tables.rows", "tables.offload"),
    WORKERS,
)
"""Paths below `rank`, likewise. Precision, `quantisedAllReduce`, `tables.exchange` and `tables.rows` round differently: they are searched
only if the JobSpec lists their values.
"""


def problems_of_space(task: Task, space: Mapping[str, Sequence[Any]]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is wrong with the space of a tune task over `task`: place below `space`, and reason.

    A value is wrong if its own field refuses it. Whether values work together is the planner's answer, for each combination.
    """
    tunable = TUNABLE if task.train is not None else TUNABLE_OF_RANKERS
    for path, values in space.items():
        if path not in tunable:
            near = get_close_matches(path, tunable, n=1)
            hint = f"did you mean {near[0]}?" if near else f"tunable are {', '.join(tunable)}"
            yield (path,), f"cannot be tuned for the {task.kind} task {task.name}: {hint}"
            continue
        if not values:
            yield (path,), "has no value: list some, or leave the setting out"
        for index, value in enumerate(values):
            if any(value == other and type(value) is type(other) for other in values[:index]):
                yield (path, index), f"{value!r} stands there twice"
            elif reason := _why_refused(task, path, value):
                yield (path, index), reason


def apply_settings(task: Task, point: Mapping[str, Any]) -> Task:
    """The train or rank task with these settings. Raises BadInput for invalid values."""
    try:
        return _with_settings(task, point)
    except ValidationError as error:
        raise BadInput(f"{dict(point)}: {error.errors()[0]['msg']}", "take other values") from error


def _why_refused(task: Task, path: str, value: Any) -> str:
    """Why a field refuses a value; empty if it takes it, or if only another field stands against it."""
    try:
        _with_settings(task, {path: value})
    except ValidationError as error:
        parts = path.split(".") if path == WORKERS else [task.kind, *path.split(".")]
        for problem in error.errors():
            place = iter(map(str, problem["loc"]))  # between the fields stand the names of a union's members
            if all(part in place for part in parts):
                return f"{value!r}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"
    return ""


def _with_settings(task: Task, point: Mapping[str, Any]) -> Task:
    values = task.to_yaml_dict()
    for path, value in point.items():
        *groups, last = path.split(".")
        place = values if path == WORKERS else values[task.kind]
        for group in groups:
            if not isinstance(place.get(group), dict):  # unset, or `auto`
                place[group] = {}
            place = place[group]
        place[last] = value
    return Task.model_validate(values)
