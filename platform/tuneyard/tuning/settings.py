"""Settings of a train task that a tuner may choose, by their paths in the JobSpec, and the task with a choice of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuneyard.api import BadInput, Task
from tuneyard.tuning.space import Point

WORKERS = "resources.workers"
MICRO_BATCH = "batch.micro"
DATA_WORKERS = "data.workers"
TUNABLE = (
    *("strategy.zero", "strategy.recompute", "strategy.precision", "strategy.liger", "strategy.tensorParallel"),
    *("strategy.offload.optimizer", "strategy.offload.parameters", MICRO_BATCH, "model.attention", "data.pack", DATA_WORKERS, WORKERS),
)
"""Paths below `train` (and `resources.workers`). None of them changes what is learned, but precision and packing, which are searched only
where the JobSpec lists their values."""
_DEGREES = (1, 2, 4, 8)
"""Of tensor parallelism. The planner masks those that leave a machine, cut nothing, or do not go with other settings."""


def default_settings(
    task: Task, *, workers: Sequence[int], is_cpu: bool, flash: bool, liger: bool, data_workers: Sequence[int] = ()
) -> dict[str, tuple[Any, ...]]:
    """The space for a device, without what a person would have to agree to. `workers`: numbers of ranks that may be tried;
    `data_workers`: likewise, of data workers beside them; none where they cannot matter.

    `flash`, `liger`: whether the kernels are installed. Values are in the order from what a person would try first.
    """
    assert task.train is not None
    batch = task.train.batch.global_
    most = batch // min(workers)
    settings: dict[str, tuple[Any, ...]] = {
        MICRO_BATCH: tuple(2**power for power in range(most.bit_length()) if batch % 2**power == 0),
        "strategy.zero": (0, 1, 2, 3),
        "strategy.recompute": (False, True),
        "model.attention": ("flash", "sdpa") if flash else ("sdpa", "eager"),
    }
    if not is_cpu:
        settings["strategy.offload.optimizer"] = ("none", "cpu")
        degrees = tuple(degree for degree in _DEGREES if any(count % degree == 0 for count in workers))
        if len(degrees) > 1:
            settings["strategy.tensorParallel"] = degrees
        if liger:
            settings["strategy.liger"] = (True, False)
    if len(data_workers) > 1:
        settings[DATA_WORKERS] = tuple(data_workers)
    if len(workers) > 1:
        settings[WORKERS] = tuple(workers)
    return settings


def listed_settings(space: Mapping[str, Sequence[Any]]) -> dict[str, tuple[Any, ...]]:
    """The space that a JobSpec lists. Raises BadInput for a path that cannot be tuned."""
    for path in space:
        if path not in TUNABLE:
            raise BadInput(f"{path} cannot be tuned", f"name some of: {', '.join(TUNABLE)}")
    return {path: tuple(values) for path, values in space.items()}


def applied(task: Task, point: Point) -> Task:
    """The train task with these settings. Raises BadInput where they are not valid values."""
    from pydantic import ValidationError

    values = task.to_yaml_dict()
    for path, value in point.items():
        *groups, last = path.split(".")
        place = values if path == WORKERS else values["train"]
        for group in groups:
            if not isinstance(place.get(group), dict):  # left out, or `auto`
                place[group] = {}
            place = place[group]
        place[last] = value
    try:
        return Task.model_validate(values)
    except ValidationError as error:
        raise BadInput(f"{dict(point)}: {error.errors()[0]['msg']}", "take other values") from error
