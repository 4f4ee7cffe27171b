"""Rank tasks and logs of clicks for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from tuneyard.api import RankTask
from tuneyard.catalog import gpu
from tuneyard.planning import plan_of_ranker
from tuneyard.ranking import generated_clicks
from tuneyard.ranking.click_log import config_of
from tuneyard.training.request import TrainRequest

LAYERS = [["dlrm", "linear"], ["dcn", "linear"]]


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
