"""The rank task in ranks: what it learns, on any number of workers and layouts of its tables, across stops and other meshes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.builders.checkpoints import stop_after
from tests.builders.rankers import rank_request, rank_task, write_clicks
from tests.ranks.groups import results_in_ranks, train_in_ranks

from tuneyard.api import BadInput, RankTask, TuneyardError
from tuneyard.ranking import batch_of, generated_clicks, load
from tuneyard.training import TrainResult, train

STEPS = 24
RATES = {"optimizer": {"learningRate": 0.01, "schedule": "constant", "warmup": 0}, "tables": {"learningRate": 0.03}}


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clicks(tmp_path_factory.mktemp("clicks") / "clicks.parquet", rows=20_000)


def task_of(clicks: Path, **fields: Any) -> RankTask:
    values = {"batch": {"global": 240}, "steps": STEPS, "checkpoint": {"everySteps": 8}, **RATES}
    tables = RATES["tables"] | fields.pop("tables", {})
    return rank_task(clicks, **(values | {"tables": tables} | fields))


@pytest.fixture(scope="module")
def alone(clicks: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    """One worker, never stopped."""
    return results_in_ranks([rank_request(tmp_path_factory.mktemp("alone"), task_of(clicks))], 1)[0]


def test_a_ranker_learns_and_is_judged_on_rows_that_it_has_not_seen(clicks: Path, tmp_path: Path) -> None:
    fields = {"validationFraction": 0.2, "batch": {"global": 512}, "steps": 60, "slices": ["device"]}
    evaluation = {"everySteps": 20, "best": {"metric": "auc", "mode": "min"}}  # so that the best one is not the last
    result = train(rank_request(tmp_path, task_of(clicks, evaluation=evaluation, **fields)))
    metrics = result.details["metrics"]
    assert result.details["best"]["step"] == 20
    assert result.details["best"]["value"] == metrics["auc"]
    assert metrics["normalised_entropy"] < 0.97
    assert metrics["auc"] > 0.6
    assert 0.8 < metrics["calibration"] < 1.25
    assert result.details["rows"] == 60 * 512
    assert result.details["rows_per_s"] > 0
    assert result.mfu > 0
    accesses = result.details["tables"]["accesses"]
    assert set(accesses) == {each.name for each in task_of(clicks).features.sparse}
    assert all(0 < each["hottest_1_percent"] <= 1 and 0 <= each["rows_never_read"] < 1 for each in accesses.values())

    ranker = load(tmp_path / "out" / "model")
    rows = batch_of(next(iter(generated_clicks(1_000, seed=3, first_row=40_000, batch=1_000))), ranker.config)
    with torch.no_grad():
        probabilities = ranker(rows).sigmoid()
    clicked = rows["labels"]
    assert float(probabilities[clicked == 1].mean()) > float(probabilities[clicked == 0].mean()) + 0.02
    assert "row-wise Adagrad" in (tmp_path / "out" / "model" / "README.md").read_text()


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.long)])
def test_losses_are_those_of_one_worker(workers: int, clicks: Path, alone: TrainResult, tmp_path: Path) -> None:
    """Two workers hold the claim in `make test`; test_sharded_tables.py has three."""
    ways: list[dict[str, Any]] = [{"tables": {"sharding": how}} for how in ("auto", "table", "row", "column")]
    rounded = {"fp16": 2e-3, "int8": 1e-2}  # the first step is within 1e-5 and 1e-4: what is learned from it grows
    ways += [{"tables": {"exchange": exchange}} for exchange in rounded]
    requests = [
        rank_request(tmp_path / str(number), task_of(clicks, model={"width": 32}, **way), workers=workers)
        for number, way in enumerate(ways)
    ]
    wide = results_in_ranks([rank_request(tmp_path / "alone", task_of(clicks, model={"width": 32}))], 1)[0]
    for way, result in zip(ways, results_in_ranks(requests, workers), strict=True):
        apart = np.abs(np.array(result.losses) - wide.losses).max()
        assert apart < rounded.get(way["tables"].get("exchange", "fp32"), 2e-5), way
        assert abs(result.losses[0] - wide.losses[0]) < 1e-4, way
    plain = results_in_ranks([rank_request(tmp_path / "plain", task_of(clicks), workers=workers)], workers)[0]
    assert np.allclose(plain.losses, alone.losses, atol=2e-5)


def test_any_layout_of_the_dense_part_has_the_same_losses(clicks: Path, alone: TrainResult, tmp_path: Path) -> None:
    ways: list[dict[str, Any]] = [
        {"zero": 1},
        {"zero": 2},
        {"zero": 3},
        {"micro_batch": 40, "grad_accum": 3},
        {"recompute": True},
    ]
    requests = [rank_request(tmp_path / str(number), task_of(clicks), workers=2, **way) for number, way in enumerate(ways)]
    for way, result in zip(ways, results_in_ranks(requests, 2), strict=True):
        assert np.allclose(result.losses, alone.losses, atol=5e-5), way


@pytest.mark.parametrize("rows", ["fp32", "fp16"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(rows: str, clicks: Path, tmp_path: Path) -> None:
    other = {"model": {"layers": [["dlrm", "experts"], ["dcn", "linear"]], "ensemble": "weighted_sum"}} if rows == "fp16" else {}
    task = task_of(clicks, tables={"rows": rows, "exchange": "int8" if other else "fp32"}, **other)
    request = rank_request(tmp_path, task, workers=2)
    whole = results_in_ranks([request], 2)[0]
    stop_after(16, tmp_path / "out")
    again = results_in_ranks([request], 2)[0]
    assert again.resumed_from == 16
    assert again.losses == whole.losses
    assert _weights(tmp_path) is not None


@pytest.mark.parametrize(
    "stops", [[(1, 8), (3, 16), (2, None)], pytest.param([(1, 8), (2, 16), (4, 16), (3, None)], marks=pytest.mark.long)]
)
def test_one_run_over_changing_numbers_of_workers(
    stops: list[tuple[int, int | None]], clicks: Path, alone: TrainResult, tmp_path: Path
) -> None:
    """More workers, then fewer: with up to three in `make test`."""
    for number, (workers, step) in enumerate(stops):
        request = rank_request(tmp_path, task_of(clicks), workers=workers)
        result = results_in_ranks([request], workers)[0]
        if number:
            assert result.resumed_from in (8, 16)
        if step is not None:
            stop_after(step, tmp_path / "out")
    assert np.allclose(result.losses, alone.losses, atol=1e-3)
    assert np.abs(np.array(result.losses) - alone.losses).max() < 1e-4


def test_fp16_rows_learn_as_well(clicks: Path, alone: TrainResult, tmp_path: Path) -> None:
    result = results_in_ranks([rank_request(tmp_path, task_of(clicks, tables={"rows": "fp16"}))], 1)[0]
    assert abs(np.mean(result.losses[-5:]) - np.mean(alone.losses[-5:])) < 0.01


def test_a_checkpoint_of_another_ranker_is_refused(clicks: Path, tmp_path: Path) -> None:
    results_in_ranks([rank_request(tmp_path, task_of(clicks, steps=8))], 1)
    (answer,) = train_in_ranks([rank_request(tmp_path, task_of(clicks, steps=8, model={"layers": [["linear"]]}))], 1)
    assert isinstance(answer, BadInput)
    assert "was made by another task: layers was 'dlrm + linear; dcn + linear' and is 'linear'" in answer.cause


def test_a_resume_on_another_table_is_refused(clicks: Path, tmp_path: Path) -> None:
    table = pq.read_table(clicks).slice(0, 2_000)
    own = tmp_path / "own.parquet"
    pq.write_table(table, own)
    results_in_ranks([rank_request(tmp_path, task_of(own, steps=8))], 1)
    labels = table.column("clicked").to_numpy()
    changed = {
        "in another order": table.take(pa.array(np.arange(table.num_rows)[::-1])),
        "the labels of some are others": table.set_column(table.schema.get_field_index("clicked"), "clicked", pa.array(1 - labels)),
    }

    for words, other in changed.items():
        pq.write_table(other, own)
        (answer,) = train_in_ranks([rank_request(tmp_path, task_of(own, steps=8))], 1)
        assert isinstance(answer, BadInput)
        assert "own.parquet has the same 2,000 samples as when the checkpoint was written" in answer.cause
        assert words in answer.cause


def test_held_out_rows_are_judged_alike_on_any_number_of_workers(clicks: Path, tmp_path: Path) -> None:
    fields = {"validationFraction": 0.1, "evaluation": {"everySteps": 8}, "slices": ["device"]}
    found = []
    for workers in (1, 3):
        request = rank_request(tmp_path / str(workers), task_of(clicks, **fields), workers=workers)
        found.append(results_in_ranks([request], workers)[0])
    one, three = found
    assert np.allclose([loss for _, loss in one.eval_losses], [loss for _, loss in three.eval_losses], atol=1e-4)
    assert one.details["metrics"]["auc"] == pytest.approx(three.details["metrics"]["auc"], abs=1e-3)


def _weights(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / "model" / "ranker.json").read_text())
    return found


def test_many_micro_batches_and_steps_under_zero_3_find_what_was_prefetched(clicks: Path, tmp_path: Path) -> None:
    added = {"model": {"layers": [["dlrm", "linear"], ["dcn", "linear"]], "ensemble": "weighted_sum"}}
    rows = task_of(clicks, steps=3, **added)
    accumulated = rank_request(tmp_path / "accumulated", rows, workers=2, micro_batch=6, grad_accum=20)
    whole = rank_request(tmp_path / "whole", rows, workers=2)
    sharded = rank_request(tmp_path / "sharded", task_of(clicks, tables={"sharding": "row"}, **added), workers=2, zero=3)
    first, second, third = results_in_ranks([accumulated, whole, sharded], 2)
    assert np.allclose(third.losses[:3], second.losses, atol=2e-5)
    assert np.allclose(first.losses, second.losses, atol=2e-5)
    assert third.steps == STEPS


def test_predictions_that_are_no_numbers_end_the_task_with_what_to_lower(clicks: Path, tmp_path: Path) -> None:
    fields = {"validationFraction": 0.1, "evaluation": {"everySteps": 1}, "tables": {"learningRate": 1e15}}
    (answer,) = train_in_ranks([rank_request(tmp_path, task_of(clicks, **fields))], 1)
    assert isinstance(answer, TuneyardError)
    assert "learningRate" in answer.next_step
