"""A table that a ranker with transforms scores: rows go through its steps, and what is kept of the table does not. Without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tuneyard.api import BadInput, ScoreTask
from tuneyard.data.tables import Pipeline
from tuneyard.ranking import EnsembleLayer, RankerConfig, SparseFeature, batch_of, load, save
from tuneyard.scoring import Measured, ScoreRequest, work_of
from tuneyard.scoring.ranker.work import RankedResult, RankerWork

STEPS: list[dict[str, Any]] = [
    {"op": "sigrid_hash", "inputs": ["user"], "output": "user", "table_size": 50},
    {"op": "bucketize", "inputs": ["age"], "output": "age_group", "borders": [20, 40]},
    {"op": "cartesian", "inputs": ["user", "age_group"], "output": "user_by_age", "table_size": 60},
    {"op": "get_local_hour", "inputs": ["time"], "output": "hour", "time_zone": "Asia/Kolkata"},
    {"op": "clamp", "inputs": ["clicks"], "output": "clicked", "low": 0, "high": 1},
]
CONFIG = RankerConfig(
    dense=("age",),
    sparse=(SparseFeature("user", 50), SparseFeature("user_by_age", 60)),
    layers=(EnsembleLayer(("linear",), outputs=2),),
    width=4,
    hidden=(8,),
    tasks=("clicked",),
    transforms=Pipeline.of(STEPS),
    text_inputs={"user": True},
)
MEASURED = Measured(wall_s=1.0, load_s=0.0, generation_s=0.5, deaths=0, stopped=False, settings=None)
ROWS = 90


def rows(**changes: Any) -> pa.Table:
    columns: dict[str, Any] = {
        "user": pa.array([None if n % 9 == 0 else f"user {n % 30}" for n in range(ROWS)]),
        "age": pa.array([None if n % 7 == 0 else float(n) for n in range(ROWS)], pa.float64()),
        "time": pa.array([n * 3_600 for n in range(ROWS)], pa.int64()),
        "clicks": pa.array([n % 3 for n in range(ROWS)], pa.int64()),
    }
    return pa.table({name: values for name, values in (columns | changes).items() if values is not None})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(3)
    save(CONFIG.build(), tmp_path / "model")
    return tmp_path


def opened(folder: Path, table: pa.Table, **fields: Any) -> RankerWork:
    pq.write_table(table, folder / "table.parquet", row_group_size=25)
    data = {"source": str(folder / "table.parquet")} | fields.pop("data", {})
    task = ScoreTask.model_validate({"model": {"name": str(folder / "model")}, "data": data, "rowsPerPart": 17} | fields)
    places = {"output": str(folder / "out"), "scratch": str(folder / "scratch")}
    work = work_of(ScoreRequest(job="job", name="score", task=task, model_uri=str(folder / "model"), **places))
    assert isinstance(work, RankerWork)
    return work


def scored(folder: Path, table: pa.Table, **fields: Any) -> tuple[RankedResult, pa.Table]:
    work = opened(folder, table, **fields)
    worker = work.worker(work.order)
    worker.load()
    for part in work.missing:
        work.take(worker.score(part).sums)
    return work.finish(MEASURED), pq.read_table(folder / "out" / "parts")


def test_rows_go_through_the_steps_and_kept_columns_do_not(folder: Path) -> None:
    ranking = {"slices": ["hour", "age_group"], "windows": {"every": 36_000, "column": "time"}}
    result, found = scored(folder, rows(), data={"keep": ["user", "time", "clicks"]}, ranking=ranking)
    assert found.schema.names == ["row", "user", "time", "clicks", "probability_clicked", "error"]
    assert found.column("user").to_pylist() == rows().column("user").to_pylist()
    assert found.column("clicks").to_pylist() == rows().column("clicks").to_pylist()
    with torch.inference_mode():
        own = load(folder / "model")(batch_of(rows(), CONFIG, labels=False)).sigmoid()[:, 0].numpy()
    assert np.allclose(found.column("probability_clicked").to_numpy(), own, atol=1e-6)
    figures = result.judged["clicked"]
    assert figures["all"]["rows"] == ROWS
    assert figures["all"]["positives"] == 60
    assert set(figures["slices"]["age_group"]) == {"0", "1", "2", "(missing)"}
    assert len(figures["slices"]["hour"]) == 24
    assert "5" in figures["slices"]["hour"]  # 00:00 UTC is 05:30 in India
    assert [window["start"] for window in figures["windows"]][:2] == [0, 36_000]


def test_only_what_the_steps_need_is_read(folder: Path) -> None:
    assert set(opened(folder, rows()).order.table.columns) == {"age", "user", "clicks"}  # no time: nothing that is scored is made from it
    save(load(folder / "model"), folder / "again" / "model")
    assert "time" in opened(folder / "again", rows(), ranking={"slices": ["hour"]}).order.table.columns


def test_a_table_without_what_labels_are_made_from_is_scored_and_not_judged(folder: Path) -> None:
    result, found = scored(folder, rows(clicks=None, time=None))
    assert (found.num_rows, result.metrics) == (ROWS, {})
    assert result.details["notes"] == ["the table has no column clicked: its scores are not judged"]


def test_a_column_that_is_named_as_an_output_does_not_disturb(folder: Path) -> None:
    plain, with_output = scored(folder, rows())[1], rows().append_column("age_group", pa.array(["x"] * ROWS))
    save(load(folder / "model"), folder / "again" / "model")
    assert scored(folder / "again", with_output)[1].column("probability_clicked") == plain.column("probability_clicked")


def test_a_column_of_nulls_alone_is_scored_as_missing(folder: Path) -> None:
    result, found = scored(folder, rows(user=pa.nulls(ROWS), age=pa.nulls(ROWS)))
    assert result.errors == 0
    assert len(set(found.column("probability_clicked").to_pylist())) == 1


def test_a_table_of_another_kind_is_refused_before_anything_starts(folder: Path) -> None:
    for changes, said in (
        ({"user": pa.array(range(ROWS))}, "column user holds int64, and the ranker's transforms know it as texts"),
        ({"user": None, "usr": pa.array(["a"] * ROWS)}, "there is no feature 'user'"),
        ({"age": pa.array(["old"] * ROWS)}, "it takes numbers or lists of numbers, this is string"),
    ):
        with pytest.raises(BadInput, match=said):
            opened(folder, rows(**changes))
    with pytest.raises(BadInput, match="no feature 'hours'"):
        opened(folder, rows(), ranking={"slices": ["hours"]})
