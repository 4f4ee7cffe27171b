"""Names and values that trackers get of events."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.reports import make_job, score_events, train_events, train_result

from tuneyard.tracking import Evaluated, SampleShown, Step, TaskEvent
from tuneyard.tracking.trackers.measurements import LONGEST_NAME, Metrics, Note, Parameters, flat, name_of, parameters_of, told

MLFLOW_NAME = re.compile(r"^[/\w.\- :]*$")
"""`mlflow.utils.validation`"""
texts = st.text(max_size=300)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


def takes(name: str) -> bool:
    """Whether MLflow, the most particular of the trackers, takes a name."""
    normal = posixpath.normpath(name)
    return bool(MLFLOW_NAME.match(name)) and name == normal and normal != "." and not normal.startswith(("..", "/")) and len(name) <= 250


@given(texts, texts)
def test_every_name_is_one_that_trackers_accept(prefix: str, name: str) -> None:
    assert takes(name_of(prefix, name))
    assert len(name_of(prefix, name)) <= LONGEST_NAME


@given(texts, values)
def test_results_of_any_shape_become_named_numbers(task: str, result: Any) -> None:
    event = TaskEvent(task=task, state="succeeded", kind="score", result={"value": result})
    for each in told(event):
        if isinstance(each, Metrics):
            assert all(takes(name) and isinstance(value, float) for name, value in each.values.items())


@given(values)
def test_a_list_of_named_things_is_a_mapping_and_nulls_are_left_out(value: Any) -> None:
    assert flat("p", [{"name": "one", "value": 1}]) == {"p/one/name": "one", "p/one/value": 1}
    assert None not in flat("p", value).values()


def test_a_step_of_pairs_has_its_rewards() -> None:
    step = next(event for event in train_events() if isinstance(event, Step))
    (metrics,) = told(replace(step, figures={"rewards/accuracy": 0.75}))
    assert isinstance(metrics, Metrics)
    assert metrics.values["train/rewards/accuracy"] == 0.75


def test_a_step_has_its_measurements_and_parts_of_its_time() -> None:
    step = next(event for event in train_events() if isinstance(event, Step))

    (metrics,) = told(replace(step, rows_per_s=None))

    assert isinstance(metrics, Metrics)
    assert (metrics.axis, metrics.step) == ("train/step", 1)
    assert metrics.values["train/loss"] == step.loss
    assert metrics.values["train/time/forward_s"] == 0.21
    assert "train/rows_per_s" not in metrics.values
    assert "train/router_loss" not in metrics.values


def test_evaluations_and_score_tasks_have_their_own_steps() -> None:
    (evaluated,) = told(Evaluated(task="train", step=40, loss=1.5, figures={"auc": 0.8}))
    assert evaluated == Metrics({"train/eval_loss": 1.5, "train/auc": 0.8}, "train/step", 40)

    found = [each for event in score_events("judge", {"rouge_l": 0.5}) for each in told(event)]
    assert Metrics({"judge/rows": 150.0, "judge/errors": 1.0, "judge/output_tokens_per_s": 4100.0}, "judge/rows", 150) in found
    assert Note("judge/status", "succeeded") in found
    result = next(each for each in found if isinstance(each, Metrics) and each.step is None)
    assert result.axis == "judge/rows"
    assert result.values["judge/result/metrics/rouge_l"] == 0.5


def test_a_plan_becomes_parameters() -> None:
    (told_of_start,) = told(next(train_events()))
    assert isinstance(told_of_start, Parameters)
    assert told_of_start.values["train/plan/zero"] == 3
    assert told_of_start.values["train/plan/memory/weights_gb"] == 14.1


def test_no_secret_and_no_sample_of_data_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_environment_secret")
    job = make_job(env=[{"name": "API_TOKEN", "value": "written-secret"}], setup=["login hf_environment_secret"])

    parameters = parameters_of(job).values

    assert "secret" not in str(parameters)
    assert parameters["job/tasks/train/train/steps"] == 120
    assert list(told(SampleShown(task="train", pieces=(("a private chat", True),)))) == []


def test_a_result_that_is_true_or_a_text_is_no_metric() -> None:
    event = TaskEvent(task="train", state="succeeded", kind="train", result=train_result() | {"early": True, "words": "many"})
    metrics = [each for each in told(event) if isinstance(each, Metrics)]
    assert metrics[0].values["train/result/mfu"] == 0.418
    assert not {"train/result/early", "train/result/words"} & set(metrics[0].values)
