"""The values that a tuner tries for the settings of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuneyard.api import BadInput, Task
from tuneyard.api.tuned_settings import (
    DATA_WORKERS,
    ENGINE_BATCH,
    ENGINE_DEGREE,
    EXCHANGE,
    INSTANCES,
    MICRO_BATCH,
    SHARDING,
    WORKERS,
)

_MICRO_BATCHES = 4
"""Micro-batches of a ranker or program: successive halves of a worker's share of the batch. Smaller ones only add launches."""
_DEGREES = (1, 2, 4, 8)
"""Degrees of tensor and context parallelism. The planner masks those that cross machines, cut nothing, or conflict with other settings."""
_ENGINE_BATCHES = (8, 16, 32, 64, 128, 256)
_STEP_TOKENS = (1024, 4096)
"""Tokens of a step of an engine. Smaller steps leave long prompts less of the time of other answers."""
_MEMORY_FRACTIONS = (0.85, 0.9, 0.95)
_LONG_ROWS = 8192
"""Tokens of a row from which context parallelism is tried unasked: shorter rows fit on one device."""


def default_settings(
    task: Task, *, workers: Sequence[int], is_cpu: bool, flash: bool, liger: bool, data_workers: Sequence[int] = (), per_host: int = 8
) -> dict[str, tuple[Any, ...]]:
    """The space for a device, without settings that need a person's consent. `workers`: numbers of ranks to try; `data_workers`: numbers of
    data workers beside them, empty if they have no effect; `per_host`: ranks of a machine.

    `flash`, `liger`: whether the kernels are installed. Values are in the order in which a person would try them.
    """
    assert task.train is not None
    batch = task.train.batch.rows
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
            settings["strategy.sequenceParallel"] = (False, True)
        if len(degrees) > 1 and task.train.data.max_length >= _LONG_ROWS:
            settings["strategy.contextParallel"] = degrees
        if max(workers) > per_host:
            settings["strategy.shardWithin"] = ("none", "host")
        if liger:
            settings["strategy.liger"] = (True, False)
    if len(data_workers) > 1:
        settings[DATA_WORKERS] = tuple(data_workers)
    if len(workers) > 1:
        settings[WORKERS] = tuple(workers)
    return settings


def default_settings_of_ranker(task: Task, *, workers: Sequence[int], is_cpu: bool, per_host: int = 8) -> dict[str, tuple[Any, ...]]:
    """`default_settings` of a rank task."""
    assert task.rank is not None
    sparse = bool(task.rank.features.sparse)
    settings = _settings_in_rows(task, workers, is_cpu=is_cpu, per_host=per_host) | {"strategy.recompute": (False, True)}
    if max(workers) > 1 and sparse:
        settings[SHARDING] = ("auto", "table", "row", "column")
    if not is_cpu and sparse:
        settings["tables.offload"] = ("none", "cpu")
    return settings


def default_settings_of_program(
    task: Task, *, workers: Sequence[int], is_cpu: bool, data_workers: Sequence[int] = (), per_host: int = 8
) -> dict[str, tuple[Any, ...]]:
    """`default_settings` of a train task with a program."""
    settings = _settings_in_rows(task, workers, is_cpu=is_cpu, per_host=per_host)
    return settings | ({DATA_WORKERS: tuple(data_workers)} if len(data_workers) > 1 else {})


def _settings_in_rows(task: Task, workers: Sequence[int], *, is_cpu: bool, per_host: int) -> dict[str, tuple[Any, ...]]:
    """What rankers and programs share."""
    assert task.training is not None
    batch = task.training.batch.rows
    halves = [batch // min(workers) >> power for power in range(_MICRO_BATCHES)]
    settings: dict[str, tuple[Any, ...]] = {
        MICRO_BATCH: tuple(dict.fromkeys(rows for rows in halves if rows and batch % rows == 0)),
        "strategy.zero": (0, 1, 2, 3),
    }
    if not is_cpu:
        settings["strategy.offload.optimizer"] = ("none", "cpu")
        if max(workers) > per_host:
            settings["strategy.shardWithin"] = ("none", "host")
    if len(workers) > 1:
        settings[WORKERS] = tuple(workers)
    return settings


def default_settings_of_engines(task: Task, *, devices: int, is_cpu: bool, most_in_flight: int) -> dict[str, tuple[Any, ...]]:
    """`default_settings` of a score task. `devices`: those of all its engines, which other layouts use too; `most_in_flight`: answers at
    once above which the batch makes no difference.
    """
    assert task.score is not None
    settings: dict[str, tuple[Any, ...]] = {
        ENGINE_BATCH: tuple(batch for batch in _ENGINE_BATCHES if batch <= most_in_flight) or (max(1, most_in_flight),),
        "engine.stepTokens": ("auto", *_STEP_TOKENS),
        "engine.prefixCache": (True, False),
    }
    if not is_cpu:
        settings["engine.memoryFraction"] = _MEMORY_FRACTIONS
        degrees = tuple(degree for degree in _DEGREES if devices % degree == 0)
        if len(degrees) > 1:
            settings[ENGINE_DEGREE] = degrees
            settings[INSTANCES] = tuple(sorted(devices // degree for degree in degrees))
    return settings


def refuse_without_effect(task: Task, space: Mapping[str, Sequence[Any]], *, workers: int, hosts: int, is_cpu: bool) -> None:
    """Raises BadInput for a setting of a train or rank task that has no effect on `workers` ranks of `hosts` machines."""
    counts = [workers, *(count for count in space.get(WORKERS, ()) if isinstance(count, int))]
    alone, together = max(counts) == 1, "all workers are on one machine" if hosts == 1 else ""
    reasons = {
        SHARDING: "one worker keeps all tables" if alone else "",
        EXCHANGE: "one worker exchanges no embeddings" if alone else "",
        "strategy.quantisedAllReduce": "one worker exchanges no gradients" if alone else "",
        "strategy.tensorParallel": "one worker has nobody to share matrices with" if alone else "",
        "strategy.contextParallel": "one worker has nobody to share rows with" if alone else "",
        "strategy.sequenceParallel": "no workers share matrices" if alone or _never_shares_matrices(task, space) else "",
        "strategy.shardWithin": together,
        "tables.offload": "tables of a worker on cpu are in the memory of the host" if is_cpu else "",
    }
    tables = task.rank is None or bool(task.rank.features.sparse)
    for path in space:
        why = "the ranker has no tables" if path.startswith("tables.") and not tables else reasons.get(path)
        if why:
            raise BadInput(f"{path} cannot matter for task {task.name}: {why}", f"leave {path} out of the space")


def _never_shares_matrices(task: Task, space: Mapping[str, Sequence[Any]]) -> bool:
    own = task.training.layout.tensor_parallel if task.training is not None else 1
    return max([own, *(degree for degree in space.get("strategy.tensorParallel", ()) if isinstance(degree, int))]) == 1
