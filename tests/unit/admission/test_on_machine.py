"""How many ranks a local train task gets, and what this machine refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tuneyard.admission import Machine, choose_workers
from tuneyard.admission.on_machine import check_instances, check_sku
from tuneyard.api import BadInput, Task

LAPTOP, SERVER = Machine("cpu", 8), Machine("h100-80gb", 4)


def train(rows: int = 8, micro: Any = "auto", **resources: Any) -> Task:
    body = {"model": {"name": "m"}, "data": {"source": "d"}, "batch": {"global": rows, "micro": micro}}
    return Task.model_validate({"name": "t", "train": body, "resources": resources})


@pytest.mark.parametrize(
    ("task", "machine", "workers"),
    [
        (train(), LAPTOP, 2),
        (train(), Machine("cpu", 1), 1),
        (train(), SERVER, 4),
        (train(rows=1), SERVER, 1),
        (train(rows=6), SERVER, 3),
        (train(rows=8, micro=4), SERVER, 2),
        (train(workers=4), LAPTOP, 4),
        (train(workers={"min": 1, "max": 3}, rows=6), SERVER, 3),
        (train(workers={"min": 4, "max": 8}), LAPTOP, 4),
        (train(workers={"min": 3, "max": 5}), LAPTOP, 4),
        (train(workers={"min": 3, "max": 8}, rows=24), LAPTOP, 3),
        (train(workers={"min": 3, "max": 16}), LAPTOP, 4),
    ],
)
def test_workers(task: Task, machine: Machine, workers: int) -> None:
    assert choose_workers(task, machine) == workers


def test_more_workers_than_gpus_are_refused() -> None:
    with pytest.raises(BadInput, match="asks for 8 workers, and this machine has 4 GPUs"):
        choose_workers(train(workers=8), SERVER)


def test_a_batch_that_cannot_be_divided_is_refused() -> None:
    with pytest.raises(BadInput, match=r"batch.global 6 of task t cannot be divided over 4 workers") as error:
        choose_workers(train(rows=6, workers=4), LAPTOP)
    assert "multiple of 4" in error.value.next_step


def test_a_task_for_another_sku_is_refused() -> None:
    check_sku(train(sku=["cpu", "h100-80gb"]), LAPTOP)
    with pytest.raises(BadInput, match="asks for h100-80gb, and this machine is cpu"):
        check_sku(train(sku=["h100-80gb"]), LAPTOP)


def test_more_engines_than_gpus_are_refused() -> None:
    score = {"model": {"name": "m"}, "data": {"source": "d"}, "engine": {"tensorParallel": 2}}
    task = Task.model_validate({"name": "s", "score": score, "resources": {"instances": 3}})
    with pytest.raises(BadInput, match="6 GPUs"):
        check_instances(task, SERVER)
    check_instances(task, LAPTOP)
