"""The best evaluation as a task names it: by which figure, which side is better, and what no task has."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tuneyard.api import JobSpec, check_rules
from tuneyard.api.evaluation import Best, Evaluation


def job(kind: str, evaluation: dict[str, Any], **fields: Any) -> JobSpec:
    held_out = {"validationFraction": 0.1}
    bodies: dict[str, dict[str, Any]] = {
        "train": {"model": {"name": "m"}, "data": {"source": "d", **held_out}},
        "program": {"program": "line:Line", "data": {"source": "d", **held_out}},
        "rank": {"table": {"source": "t"}, "features": {"dense": ["x"]}, "label": "y", "model": {"layers": [["linear"]]}, **held_out},
    }
    body = {**bodies[kind], "evaluation": evaluation, **fields}
    task = {"name": "t", "rank" if kind == "rank" else "train": body}
    return JobSpec.model_validate({"metadata": {"name": "j"}, "spec": {"tasks": [task]}})


@pytest.mark.parametrize(
    ("best", "is_max"),
    [
        ({}, False),
        ({"metric": "rouge_l"}, True),
        ({"metric": "perplexity"}, False),
        ({"metric": "normalised_entropy_bought"}, False),
        ({"metric": "rewards/accuracy"}, True),
        ({"metric": "rouge_l", "mode": "min"}, False),
        ({"metric": "arrived", "mode": "max"}, True),
    ],
)
def test_the_better_side_of_a_figure_of_tuneyard_is_known(best: dict[str, str], is_max: bool) -> None:
    assert Best.model_validate(best).is_max is is_max


@pytest.mark.parametrize("metric", ["arrived", "calibration"])
def test_the_better_side_of_other_figures_must_be_said(metric: str) -> None:
    with pytest.raises(ValidationError, match="write max, or min if lower values are better"):
        Best.model_validate({"metric": metric})


def test_early_stop_alone_goes_by_the_loss_and_without_both_the_last_weights_stay() -> None:
    assert Evaluation().goal is None
    assert Evaluation(early_stop=2).goal == Best(metric="loss")
    assert Evaluation(early_stop=2, best=Best(metric="rouge_l")).goal == Best(metric="rouge_l")


@pytest.mark.parametrize(
    ("kind", "evaluation", "fields", "broken"),
    [
        ("train", {"best": {}}, {}, []),
        ("train", {"best": {"metric": "rouge_l"}}, {}, ["best-of-unknown-figure"]),
        ("train", {"best": {"metric": "rewards/accuracy"}}, {}, ["best-of-unknown-figure"]),
        ("train", {"best": {"metric": "rewards/accuracy"}}, {"objective": "dpo"}, []),
        ("train", {"metrics": ["rouge_l"]}, {}, ["predictions-without-program"]),
        ("train", {"samples": 3}, {}, ["predictions-without-program"]),
        ("train", {"best": {}}, {"data": {"source": "d"}}, ["evaluation-without-data"]),
        ("program", {"best": {"metric": "arrived", "mode": "max"}, "metrics": ["bleu"], "samples": 3}, {}, []),
        ("program", {"metrics": ["bleu"]}, {"data": {"source": "d"}}, ["evaluation-without-data"]),
        ("rank", {"best": {"metric": "auc"}}, {}, []),
        ("rank", {"best": {"metric": "auc_bought"}}, {}, ["best-of-unknown-figure"]),
        ("rank", {"best": {"metric": "auc_bought"}}, {"moreLabels": ["bought"]}, []),
        ("rank", {"predictions": True}, {}, ["predictions-without-program"]),
        ("rank", {"best": {}}, {"validationFraction": 0}, ["evaluation-without-data"]),
    ],
)
def test_what_a_kind_of_task_does_not_have_is_refused(
    kind: str, evaluation: dict[str, Any], fields: dict[str, Any], broken: list[str]
) -> None:
    assert [violation.rule.id for violation in check_rules(job(kind, evaluation, **fields))] == broken


def test_only_metrics_of_texts_measure_predictions() -> None:
    with pytest.raises(ValidationError, match="perplexity"):
        Evaluation.model_validate({"metrics": ["perplexity"]})
