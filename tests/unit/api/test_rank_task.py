"""The rank task of a JobSpec: what it says, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from tests.builders.rankers import rank_task

from tuneyard.api import Task


def test_it_is_a_training_for_whoever_places_ranks() -> None:
    task = Task(name="rank", rank=rank_task("s3://ads/clicks", batch={"global": 512}, epochs=2))
    assert task.kind == "rank"
    assert task.training is not None
    assert task.training.batch.global_ == 512
    assert task.training.divides_over(4)
    assert task.training.data.source == "s3://ads/clicks"
    assert task.sources()["rank.table"].source == "s3://ads/clicks"


def test_a_table_that_an_earlier_task_makes_is_waited_for() -> None:
    body = rank_task(table={"from": "log"}, validation={"from": "day", "path": "last"})
    task = Task(name="rank", rank=body)
    assert task.references() == {"rank.table.from": "log", "rank.validation.from": "day"}
    assert body.as_training().data.from_task == "log"


@pytest.mark.parametrize("limit", [None, 1_000])
def test_a_service_is_that_of_its_training(limit: int | None) -> None:
    body = rank_task(table={"source": "s3://ads/clicks", "limit": limit}, service={"maxWorkers": 8})
    assert body.is_streamed
    service = body.as_training().data.service
    assert service is not None
    assert service.max_workers == 8
    assert not rank_task().is_streamed
    assert rank_task(streaming=True).is_streamed


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"features": {}}, "at least one dense or sparse column"),
        ({"features": {"dense": ["age"], "sparse": [{"name": "age"}]}}, "age is named twice"),
        ({"features": {"dense": ["clicked"]}}, "clicked is a label and a feature"),
        ({"moreLabels": ["clicked"]}, "label clicked is named twice"),
        ({"epochs": 1, "steps": 5}, "epochs or steps"),
        ({"validation": {"source": "x"}, "validationFraction": 0.1}, "not both"),
        ({"slices": ["device"]}, "slices are of held-out rows"),
        ({"service": {}, "streaming": False}, "leave streaming: false out"),
        ({"service": {}, "validationFraction": 0.1}, "a table of their own"),
        ({"streaming": True, "validationFraction": 0.1}, "a table of their own"),
        ({"streaming": True, "negativeRate": 0.5}, "sampling and negativeRate"),
        ({"service": {}, "transforms": [{"op": "sampling", "key": "user", "rate": 0.5}]}, "sampling and negativeRate"),
        ({"slices": ["device", "device"], "validationFraction": 0.1}, "device is named twice in slices"),
        ({"model": {"layers": []}}, "layers"),
        ({"model": {"layers": [["mlp"]]}}, "dlrm"),
        ({"features": {"sparse": [{"name": "a", "rows": 0}]}}, "rows"),
    ],
)
def test_what_cannot_be_meant_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        rank_task(**fields)
