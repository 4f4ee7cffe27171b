"""Rank tasks on streamed tables: the losses of stored rows, on any number of ranks, across stops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.builders.checkpoints import stop_after
from tests.builders.rankers import rank_request, rank_task, small_windows, write_clicks
from tests.ranks.forks import Call, called
from tests.ranks.groups import _rank, group, results_in_ranks

from tuneyard.api import BadInput, RankTask, TuneyardError
from tuneyard.training import TrainRequest, TrainResult

STEPS = 24
FIELDS: dict[str, Any] = {
    "batch": {"global": 240},
    "steps": STEPS,
    "checkpoint": {"everySteps": 8},
    "optimizer": {"learningRate": 0.01, "schedule": "constant", "warmup": 0},
}


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clicks(tmp_path_factory.mktemp("clicks") / "clicks.parquet", rows=4_000)


def task_of(clicks: Path, **fields: Any) -> RankTask:
    return rank_task(clicks, **(FIELDS | fields))


def in_small_windows(
    requests: Sequence[TrainRequest], workers: int, cache: Path, *, per_machine: int | None = None
) -> list[TrainResult | TuneyardError]:
    """What rank 0 answers where the table has several windows. `per_machine`: ranks that share a cache; default: all."""
    ranks = per_machine or workers
    places = group(workers, per_machine=ranks)
    places = [{**place, "TUNEYARD_CACHE": f"{cache}-{number // ranks}"} for number, place in enumerate(places)]
    answers: list[TrainResult | TuneyardError] = called([Call(_rank_in_small_windows, (list(requests),), place) for place in places])[0]
    return answers


def _rank_in_small_windows(requests: Sequence[TrainRequest]) -> list[TrainResult | TuneyardError]:
    with small_windows(split_bytes=24 << 10):
        return _rank(requests)


def result(answers: Sequence[TrainResult | TuneyardError]) -> TrainResult:
    (answer,) = answers
    assert isinstance(answer, TrainResult), answer
    return answer


@pytest.mark.parametrize("workers", [1, 2])
def test_losses_are_those_of_stored_rows_bit_for_bit(workers: int, clicks: Path, tmp_path: Path) -> None:
    ways: list[dict[str, Any]] = [{}, {"streaming": True}, {"shuffle": False}, {"shuffle": False, "streaming": True}]
    requests = [rank_request(tmp_path / str(number), task_of(clicks, **way), workers=workers) for number, way in enumerate(ways)]
    stored, streamed, stored_as_it_lies, streamed_as_it_lies = results_in_ranks(requests, workers)
    assert streamed.losses == stored.losses
    assert streamed_as_it_lies.losses == stored_as_it_lies.losses
    assert streamed.details["data"]["streamed"]
    assert streamed.details["data"]["epoch_rows"] == 4_000
    assert streamed.details["stream"]["shards"] > 0
    assert streamed.details["bottleneck"]["sentence"]


@pytest.fixture(scope="module")
def windowed(clicks: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    """One rank, many windows, held-out rows of a table of their own, never stopped."""
    folder = tmp_path_factory.mktemp("windowed")
    return result(in_small_windows([rank_request(folder, held_out_task(clicks))], 1, folder / "cache"))


def held_out_task(clicks: Path) -> RankTask:
    day = write_clicks(clicks.with_name("day.parquet"), rows=500, first_row=9_000) if not clicks.with_name("day.parquet").exists() else ""
    source = str(day or clicks.with_name("day.parquet"))
    return task_of(clicks, streaming=True, validation={"source": source}, evaluation={"everySteps": 12}, slices=["device"])


def test_held_out_rows_are_judged_beside_a_stream(windowed: TrainResult) -> None:
    assert len(windowed.eval_losses) == 2
    assert windowed.details["metrics"]["auc"] > 0.5
    assert windowed.details["data"]["validation_rows"] == 500
    assert "device" in windowed.details["slices"]["clicked"]


def test_the_order_is_the_same_on_any_number_of_ranks_and_after_stops(clicks: Path, windowed: TrainResult, tmp_path: Path) -> None:
    """Each attempt on other ranks, and on machines that have no shard yet."""
    for number, (workers, step) in enumerate([(1, 8), (2, 16), (3, None)]):
        request = rank_request(tmp_path, held_out_task(clicks), workers=workers)
        found = result(in_small_windows([request], workers, tmp_path / f"cache-{number}"))
        if step is not None:
            stop_after(step, tmp_path / "out")
    assert found.resumed_from == 16
    assert np.abs(np.array(found.losses) - windowed.losses).max() < 1e-4


def test_a_stop_and_a_start_on_two_machines_with_empty_disks_change_no_bit(clicks: Path, tmp_path: Path) -> None:
    request = rank_request(tmp_path, held_out_task(clicks), workers=2)
    whole = result(in_small_windows([request], 2, tmp_path / "cache"))
    stop_after(16, tmp_path / "out")
    again = result(in_small_windows([request], 2, tmp_path / "other", per_machine=1))
    assert again.resumed_from == 16
    assert again.losses == whole.losses


def test_a_checkpoint_of_stored_rows_is_not_gone_on_from_as_a_stream(clicks: Path, tmp_path: Path) -> None:
    results_in_ranks([rank_request(tmp_path, task_of(clicks, steps=8))], 1)
    (answer,) = in_small_windows([rank_request(tmp_path, task_of(clicks, steps=8, streaming=True))], 1, tmp_path / "cache")
    assert isinstance(answer, BadInput)
    assert "rows was None and is 'streamed'" in answer.cause


def test_a_row_group_that_is_damaged_ends_the_task_with_its_name(tmp_path: Path) -> None:
    path = write_clicks(tmp_path / "clicks.parquet", rows=4_000)
    at = pq.read_metadata(path).row_group(3).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[at : at + 30] = b"\xff" * 30
    path.write_bytes(content)
    answers = in_small_windows([rank_request(tmp_path / "run", task_of(path, streaming=True, shuffle=False))], 1, tmp_path / "cache")
    assert isinstance(answers[0], BadInput)
    assert "clicks.parquet: row group 3 cannot be read" in answers[0].cause
