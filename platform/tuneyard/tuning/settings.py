"""The values that a tuner tries for the settings of a train or rank task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuneyard.api import BadInput, Task
from tuneyard.api.tuned_settings import DATA_WORKERS, EXCHANGE, MICRO_BATCH, SHARDING, WORKERS

_MICRO_BATCHES = 4
"""Micro-batches of a ranker: successive halves of a worker's share of the batch. Smaller ones only add launches."""
_DEGREES = (1, 2, 4, 8)
"""Degrees of tensor parallelism. The planner masks those that cross machines, cut nothing, or conflict with other settings."""


def default_settings(
    task: Task, *, workers: Sequence[int], is_cpu: bool, flash: bool, liger: bool, data_workers: Sequence[int] = ()
) -> dict[str, tuple[Any, ...]]:
    """The space for a device, without settings that need a person's consent. `workers`: numbers of ranks to try; `data_workers`: numbers of
    data workers beside them, empty if they have no effect.

    `flash`, `liger`: whether the kernels are installed. Values are in the order in which a person would try them.
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


def default_settings_of_ranker(task: Task, *, workers: Sequence[int], is_cpu: bool) -> dict[str, tuple[Any, ...]]:
    """`default_settings` of a rank task."""
    assert task.rank is not None
    batch = task.rank.batch.global_
    halves = [batch // min(workers) >> power for power in range(_MICRO_BATCHES)]
    settings: dict[str, tuple[Any, ...]] = {
        MICRO_BATCH: tuple(dict.fromkeys(rows for rows in halves if rows and batch % rows == 0)),
        "strategy.zero": (0, 1, 2, 3),
        "strategy.recompute": (False, True),
    }
    if max(workers) > 1 and task.rank.features.sparse:
        settings[SHARDING] = ("auto", "table", "row", "column")
    if not is_cpu:
        settings["strategy.offload.optimizer"] = ("none", "cpu")
        if task.rank.features.sparse:
            settings["tables.offload"] = ("none", "cpu")
    if len(workers) > 1:
        settings[WORKERS] = tuple(workers)
    return settings


def refuse_without_effect(task: Task, space: Mapping[str, Sequence[Any]], *, workers: int, hosts: int, is_cpu: bool) -> None:
    """Raises BadInput for a setting of a rank task that has no effect on `workers` ranks of `hosts` machines."""
    assert task.rank is not None
    alone = workers == 1 and max([1, *(count for count in space.get(WORKERS, ()) if isinstance(count, int))]) == 1
    reasons = {
        SHARDING: "one worker keeps all tables" if alone else "",
        EXCHANGE: "one worker exchanges no embeddings" if alone else "",
        "strategy.quantisedAllReduce": "one worker exchanges no gradients" if alone else "",
        "strategy.shardWithin": "all workers are on one machine" if hosts == 1 else "",
        "tables.offload": "tables of a worker on cpu are in the memory of the host" if is_cpu else "",
    }
    for path in space:
        why = "the ranker has no tables" if path.startswith("tables.") and not task.rank.features.sparse else reasons.get(path)
        if why:
            raise BadInput(f"{path} cannot matter for task {task.name}: {why}", f"leave {path} out of the space")
