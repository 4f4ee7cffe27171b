"""Transforms in a rank task: training, held-out rows, scoring and a resume see the same features. Drawn negatives leave no bias."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.builders.checkpoints import stop_after
from tests.builders.rankers import MEASURED_FEATURES, MEASURED_STEPS, RAW_FEATURES, RAW_STEPS, rank_request, rank_task, raw_clicks
from tests.ranks.groups import results_in_ranks, train_in_ranks

from tuneyard.api import BadInput, RankTask
from tuneyard.data.tables import Pipeline
from tuneyard.ranking import RankMetrics, batch_of, load
from tuneyard.training import train


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("raw")
    pq.write_table(raw_clicks(20_000), made / "days.parquet", row_group_size=3_000)
    pq.write_table(raw_clicks(3_000, first_row=20_000), made / "next-day.parquet", row_group_size=1_000)
    return made


def task_of(table: Path, transforms: list[dict[str, Any]] = RAW_STEPS, **fields: Any) -> RankTask:
    values = {"transforms": transforms, "features": RAW_FEATURES, "batch": {"global": 240}, "steps": 16, "checkpoint": {"everySteps": 8}}
    return rank_task(table, **(values | fields))


def test_losses_are_those_of_a_table_that_was_transformed_before(folder: Path, tmp_path: Path) -> None:
    steps = Pipeline.of(step.as_step() for step in task_of(folder / "days.parquet").transforms)
    [whole] = pq.read_table(folder / "days.parquet").combine_chunks().to_batches()
    pq.write_table(pa.Table.from_batches([steps.run(whole)]), tmp_path / "made.parquet")
    fields: dict[str, Any] = {"validationFraction": 0.1, "evaluation": {"everySteps": 8}, "slices": ["hour", "device"]}
    before = rank_request(tmp_path / "before", task_of(tmp_path / "made.parquet", [], **fields), workers=2)
    inside = rank_request(tmp_path / "inside", task_of(folder / "days.parquet", **fields), workers=2)
    one, other = results_in_ranks([before, inside], 2)
    assert other.losses == one.losses
    assert other.eval_losses == one.eval_losses
    assert other.details["slices"] == one.details["slices"]
    rows = pq.read_table(folder / "next-day.parquet")
    saved = load(tmp_path / "inside" / "out" / "model")
    with torch.no_grad():
        assert torch.isfinite(saved(batch_of(rows, saved.config))).all()
    assert saved.config.text_inputs["name"] is True


def test_a_run_that_was_stopped_goes_on_with_the_same_steps_alone(folder: Path, tmp_path: Path) -> None:
    sampling = {"op": "sampling", "key": "name", "rate": 0.5}
    fields = {"negativeRate": 0.5, "features": MEASURED_FEATURES, "validationFraction": 0.1}
    task = task_of(folder / "days.parquet", [*MEASURED_STEPS, sampling], **fields)
    request = rank_request(tmp_path, task, workers=2)
    [whole] = results_in_ranks([request], 2)
    stop_after(8, tmp_path / "out")
    [again] = results_in_ranks([request], 2)
    assert (again.resumed_from, again.losses) == (8, whole.losses)
    measured = whole.details["normalized"]["number1"]
    assert again.details["normalized"] == whole.details["normalized"]
    assert measured["rows"] == measured["of"] == 20_000
    assert 0.3 * 20_000 < measured["values"] < 0.6 * 20_000, "sampling and held-out rows are left out"
    stop_after(8, tmp_path / "out")
    seeded = [RAW_STEPS[0] | {"seed": 1}, *task.model_dump(by_alias=True, exclude_none=True)["transforms"][1:]]
    for changed, said in (
        (task_of(folder / "days.parquet", seeded, **fields), "transforms was"),
        (task_of(folder / "days.parquet"), "share"),
    ):
        [answer] = train_in_ranks([rank_request(tmp_path, changed)], 1)
        assert isinstance(answer, BadInput)
        assert "was made by another task" in answer.cause
        assert said in answer.cause


@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_predictions_are_of_all_rows_though_few_negatives_are_trained_on(rate: float, folder: Path, tmp_path: Path) -> None:
    rates = {"optimizer": {"learningRate": 0.01, "schedule": "constant", "warmup": 0}, "tables": {"learningRate": 0.03}}
    fields: dict[str, Any] = {
        "validation": {"source": str(folder / "next-day.parquet")},
        "negativeRate": rate,
        "batch": {"global": 512},
        **rates,
    }
    result = train(rank_request(tmp_path, task_of(folder / "days.parquet", steps=None, epochs=2, evaluation={"everySteps": 20}, **fields)))
    metrics = result.details["metrics"]
    assert metrics["normalised_entropy"] < 0.95
    assert 0.85 < metrics["calibration"] < 1.18
    rows = pq.read_table(folder / "next-day.parquet")
    ranker, figures = load(tmp_path / "out" / "model"), RankMetrics()
    batch = batch_of(rows, ranker.config)
    with torch.no_grad():
        figures.update(ranker(batch)[:, 0].double().numpy(), batch["labels"][:, 0].double().numpy())
    assert figures.figures().calibration == pytest.approx(metrics["calibration"], rel=1e-3)
    assert figures.figures().rows == 3_000


def test_what_leaves_nothing_to_train_on_is_refused(tmp_path: Path) -> None:
    pq.write_table(raw_clicks(1_000).slice(0, 40), tmp_path / "few.parquet")
    pq.write_table(raw_clicks(1_000).set_column(6, "name", pa.nulls(1_000, pa.string())), tmp_path / "unnamed.parquet")
    sampled = [*RAW_STEPS, {"op": "sampling", "key": "name", "rate": 0.5}]
    requests = [
        rank_request(tmp_path / "1", task_of(tmp_path / "few.parquet", negativeRate=1e-6)),
        rank_request(tmp_path / "2", task_of(tmp_path / "unnamed.parquet", sampled)),
    ]
    constant = raw_clicks(1_000).drop_columns("number1").append_column("number1", pa.array([2.5] * 1_000))
    pq.write_table(constant, tmp_path / "constant.parquet")
    requests.append(rank_request(tmp_path / "3", task_of(tmp_path / "constant.parquet", MEASURED_STEPS, features=MEASURED_FEATURES)))
    first, second, third = train_in_ranks(requests, 1)
    assert "negativeRate 1e-06 leaves no row with label 0" in str(first)
    assert "sampling leaves none of 1,000 rows" in str(second)
    assert "constant.parquet: step 9 (normalize) of number1: the 1,000 values of the training rows have a variance of 0" in str(third)
