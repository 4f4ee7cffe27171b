"""Rank tasks and logs of clicks for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tuneyard.api import RankTask
from tuneyard.catalog import gpu
from tuneyard.planning import plan_of_ranker
from tuneyard.ranking import generated_clicks
from tuneyard.ranking.click_log import config_of
from tuneyard.training.request import TrainRequest

LAYERS = [["dlrm", "linear"], ["dcn", "linear"]]
RAW_STEPS: list[dict[str, Any]] = [
    {"op": "sigrid_hash", "inputs": ["name"], "output": "user_id", "tableSize": 200},
    {"op": "first_x", "inputs": ["history"], "output": "recent", "count": 4},
    {"op": "cartesian", "inputs": ["category", "device"], "output": "category_by_device", "tableSize": 400},
    {"op": "get_local_hour", "inputs": ["time"], "output": "hour", "timeZone": "Europe/Vienna"},
    {"op": "clamp", "inputs": ["number0"], "output": "number0", "low": 0, "high": 5},
    {"op": "clamp", "inputs": ["clicks"], "output": "clicked", "low": 0, "high": 1},
]
"""Transforms of `raw_clicks`."""
MEASURED_STEPS: list[dict[str, Any]] = [
    *RAW_STEPS,
    {"op": "union", "inputs": ["history", "favorites"], "output": "liked"},
    {"op": "sort_by_score", "inputs": ["favorites", "favor"], "output": "best", "count": 2},
    {"op": "normalize", "inputs": ["number1"], "output": "number1"},
]
"""The same, with lists that are joined and ordered, and a number that is scaled by the training rows."""
RAW_FEATURES: dict[str, Any] = {
    "dense": ["number0", "number1"],
    "sparse": [
        {"name": "user_id", "rows": 200},
        {"name": "item", "rows": 50},
        {"name": "recent", "rows": 50, "length": 4},
        {"name": "category_by_device", "rows": 400},
        {"name": "hour", "rows": 24},
    ],
}
"""After `RAW_STEPS`, as a JobSpec has them."""
MEASURED_FEATURES: dict[str, Any] = {
    "dense": RAW_FEATURES["dense"],
    "sparse": [*RAW_FEATURES["sparse"], {"name": "liked", "rows": 50}, {"name": "best", "rows": 50}],
}
"""After `MEASURED_STEPS`."""


def features() -> dict[str, Any]:
    """Those of the log of clicks, as a JobSpec has them."""
    config = config_of(layers=())
    sparse = [{"name": each.name, "rows": each.rows, "length": each.length} for each in config.sparse]
    return {"dense": list(config.dense), "sparse": sparse}


def rank_task(source: str | Path = "clicks.parquet", **fields: Any) -> RankTask:
    """A task on the log of clicks; `fields` as a JobSpec has them."""
    model = {"width": 8, "outputs": 4, "layers": LAYERS, "hidden": [32]} | fields.pop("model", {})
    values = {"table": {"source": str(source)}, "features": features(), "label": "clicked", "model": model}
    return RankTask.model_validate(values | fields)


def write_clicks(path: Path, rows: int = 4_000, *, seed: int = 3, first_row: int = 0) -> Path:
    """A log as one Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = generated_clicks(rows, seed=seed, batch=1_000, first_row=first_row)
    pq.write_table(pa.Table.from_batches(list(made)), path, row_group_size=1_000)
    return path


def rank_request(folder: Path, task: RankTask, **plan: Any) -> TrainRequest:
    """A request whose output and scratch lie in `folder`; `plan`: workers, and fields of the plan that are not as the task's."""
    workers = plan.pop("workers", 1)
    planned = plan_of_ranker(task, gpu("cpu"), workers)
    return TrainRequest(
        job="test",
        name="rank",
        task=task.as_training(),
        rank=task,
        plan=replace(planned, **plan),
        model_uri="",
        output=str(folder / "out"),
        scratch=str(folder / "scratch"),
    )


def raw_clicks(rows: int, *, first_row: int = 0) -> pa.Table:
    """The log of clicks as its logger might write it: names of users, seconds, numbers of clicks, lists with scores."""
    log = pa.Table.from_batches(list(generated_clicks(rows, seed=3, batch=1_000, first_row=first_row)))
    names = pa.array([f"user {user}" for user in log.column("user").to_pylist()])
    times = pa.array(log.column("hour").to_numpy() * 3_600 + 1_700_000_000)
    clicks = pa.array(log.column("clicked").to_numpy().astype(np.int64) * 3)
    kept = log.select(["number0", "number1", "item", "history", "category", "device"])
    kept = kept.append_column("name", names).append_column("time", times).append_column("clicks", clicks)
    draws = np.random.default_rng(first_row)
    lengths = draws.integers(0, 5, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    favorites = pa.ListArray.from_arrays(offsets, draws.integers(0, 50, offsets[-1]))
    return kept.append_column("favorites", favorites).append_column("favor", pa.ListArray.from_arrays(offsets, draws.random(offsets[-1])))


@contextmanager
def small_windows(*, split_bytes: int = 32 << 10, kept_bytes: int | None = None) -> Iterator[None]:
    """Streams of small tables have many windows, of four splits each. `kept_bytes`: of shards on the disk."""
    from tuneyard.ranking.stream import opening, splits

    sizes = {"SPLIT_BYTES": split_bytes, "WINDOW_BYTES": 4 * split_bytes, "FIRST_BYTES": split_bytes}
    with ExitStack() as stack:
        for name, size in sizes.items():
            stack.enter_context(patch.object(splits, name, size))
        if kept_bytes is not None:
            stack.enter_context(patch.multiple(opening, KEPT_BYTES=kept_bytes, _KEPT_WINDOWS=0))
        yield
