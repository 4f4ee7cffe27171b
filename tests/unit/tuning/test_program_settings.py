"""Which settings of a program a tuner may choose, and what its trials are."""

from __future__ import annotations

from typing import Any

import pytest

from tuneyard.api import Task
from tuneyard.api.tuned_settings import apply_settings, tunable
from tuneyard.runtime.tune.trials import short
from tuneyard.tuning import default_settings_of_program


def task_of(**fields: Any) -> Task:
    data = {"source": "rows.jsonl", "validationFraction": 0.1}
    body = {"program": "line:Line", "data": data, "batch": {"global": 64}, "steps": 100, **fields}
    return Task.model_validate({"name": "fit", "train": body, "resources": {"workers": 2}})


def test_the_space_holds_layouts_and_nothing_that_changes_what_is_learned() -> None:
    assert default_settings_of_program(task_of(), workers=[2], is_cpu=True) == {
        "batch.micro": (32, 16, 8, 4),
        "strategy.zero": (0, 1, 2, 3),
    }
    found = default_settings_of_program(task_of(), workers=[8, 16], is_cpu=False, data_workers=(1, 2))
    assert {name: found[name] for name in ("strategy.shardWithin", "data.workers", "resources.workers")} == {
        "strategy.shardWithin": ("none", "host"),
        "data.workers": (1, 2),
        "resources.workers": (8, 16),
    }


@pytest.mark.parametrize("path", tunable("program"))
def test_every_setting_that_may_be_listed_is_a_field_of_the_task(path: str) -> None:
    values = {"strategy.precision": "fp32", "strategy.shardWithin": "host", "strategy.quantisedAllReduce": "int8"}
    value = values.get(path, "cpu" if "offload" in path else 2)
    found = apply_settings(task_of(strategy="auto"), {path: value}).to_yaml_dict()
    for part in path.split(".") if path == "resources.workers" else ["train", *path.split(".")]:
        found = found[part]
    assert found == value


def test_a_trial_has_no_held_out_rows_and_asks_for_no_predictions() -> None:
    asked = {"predictions": True, "metrics": ["rouge_l"], "best": {"metric": "rouge_l"}}
    train = short(task_of(evaluation=asked), 8).train
    assert train is not None
    assert (train.steps, train.data.validation_fraction, train.evaluation.predictions, train.evaluation.goal) == (8, 0.0, False, None)
