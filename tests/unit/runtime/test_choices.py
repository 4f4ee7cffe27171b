"""Data workers among what a tune task can choose: only where rows are made while the task trains."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import cpu_plan, train_request
from tests.builders.rankers import rank_request, rank_task

from tuneyard.admission import Machine
from tuneyard.api import BadInput, Task
from tuneyard.planning import DataRate, Speed, StepTime
from tuneyard.runtime.tune import feeding
from tuneyard.runtime.tune.choices import Choices
from tuneyard.training.request import TrainRequest

FOUR_CORES = Machine("cpu", 4)
SPEED = Speed(terms=StepTime(matmul_s=1.0), tokens_per_s=3000.0, tokens_per_s_per_gpu=3000.0, mfu=0.1)


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "usable_cores", lambda: 4)


def choices(folder: Path, **data: Any) -> Choices:
    """Of a task on one rank that takes 3,000 tokens a second. A data worker makes 1,000."""
    (folder / "texts.jsonl").write_text(json.dumps({"text": "some words"}) + "\n")
    source = {"source": str(folder / "texts.jsonl"), "maxLength": 64} | data
    body = {"model": {"name": "m"}, "data": source, "objective": "clm", "batch": {"global": 8}, "steps": 8}
    task = Task.model_validate({"name": "chat", "train": body, "resources": {"workers": 1}})

    def plan(of: Task) -> TrainRequest:
        assert of.train is not None
        return train_request(folder, of.train, replace(cpu_plan(), speed=SPEED))

    return Choices(task, FOUR_CORES, plan, {"text": DataRate(tokens_per_s=1000.0, how="by hand")})


def test_streamed_data_have_their_workers_in_the_space(tmp_path: Path) -> None:
    found = choices(tmp_path, streaming=True)
    assert found.space({}).settings["data.workers"] == (1, 2, 4)
    request = found.request({"data.workers": 2})
    assert request.task.data.workers == 2


def test_more_data_workers_are_expected_to_leave_less_of_a_wait_as_far_as_there_are_cores(tmp_path: Path) -> None:
    found = choices(tmp_path, streaming=True)
    one, two, four = (found.fed({"data.workers": count}) for count in (1, 2, 4))
    assert one == pytest.approx(0.5), "one worker and the rank make the other 2,000 tokens in a second"
    assert one < two < four == 1.0


@pytest.mark.parametrize("data", [{}, {"streaming": False}, {"limit": 1}])
def test_prepared_data_have_none_and_a_space_that_lists_them_is_refused(tmp_path: Path, data: dict[str, Any]) -> None:
    found = choices(tmp_path, **data)
    assert "data.workers" not in found.space({}).settings
    assert found.fed({}) == 1.0
    with pytest.raises(BadInput, match=r"data\.workers cannot matter for task chat: its data are prepared before the first step"):
        found.space({"data.workers": [1, 2]})


def test_a_service_has_as_many_as_it_needs(tmp_path: Path) -> None:
    found = choices(tmp_path, streaming=True, service={"maxWorkers": 1})
    assert "data.workers" not in found.space({}).settings
    with pytest.raises(BadInput, match="its service has as many data workers as the ranks need"):
        found.space({"data.workers": [1, 2]})


def test_parts_of_a_mixture_are_looked_at_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "some words"}) + "\n")
    part = {"source": str(tmp_path / "texts.jsonl")}
    assert choices(tmp_path, source=None, mix=[part, part], streaming=True).feeding.streamed
    assert not choices(tmp_path, source=None, mix=[part, part]).feeding.streamed


def test_what_the_file_amounts_to_is_not_tried_against_itself(tmp_path: Path) -> None:
    """A ranker's `batch.micro: auto` is one micro-batch: written out, it would be compared with itself, and noise would win."""
    fields = rank_task(batch={"global": 256}).model_dump(by_alias=True, exclude_unset=True)
    task = Task.model_validate({"name": "ranker", "rank": fields, "resources": {"workers": 1}})

    def plan(of: Task) -> TrainRequest:
        assert of.rank is not None
        return rank_request(tmp_path, of.rank, workers=1)

    space = Choices(task, FOUR_CORES, plan, {}).space({"batch.micro": [64, 256]})
    assert [point for point in space.settings["batch.micro"] if space.legal({"batch.micro": point})] == [64]
