"""A search space is checked with its file: every setting that cannot be tuned, and every value that its field does not take."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tuneyard.api import BadInput, JobSpec, parse
from tuneyard.api.tuned_settings import SETTINGS, tunable, usually_searched

GOOD: dict[str, list[Any]] = {
    "strategy.zero": [0, 3],
    "strategy.recompute": [True, False],
    "strategy.precision": ["bf16", "fp32"],
    "strategy.liger": [True],
    "strategy.compile": ["layers", "none"],
    "strategy.tensorParallel": [1, 2],
    "strategy.sequenceParallel": [False, True],
    "strategy.contextParallel": [1, 2],
    "strategy.shardWithin": ["host"],
    "strategy.quantisedAllReduce": ["int8"],
    "strategy.offload.optimizer": ["none", "cpu"],
    "strategy.offload.parameters": ["cpu"],
    "batch.micro": [1, 2],
    "optimizer.name": ["adamw", "adamw-8bit"],
    "optimizer.states": ["fp32", "bf16"],
    "model.attention": ["sdpa", "eager"],
    "data.pack": [True, False],
    "data.workers": [0, 2],
    "tables.sharding": ["row"],
    "tables.rows": ["fp16"],
    "tables.exchange": ["int8"],
    "tables.offload": ["cpu"],
    "resources.workers": [1, 2],
    "engine.batch": [8, "auto"],
    "engine.tensorParallel": [1, 2],
    "engine.stepTokens": ["auto", 4096],
    "engine.prefixCache": [True, False],
    "engine.memoryFraction": [0.8, 0.9],
    "engine.kvCache": ["2Gi"],
    "engine.eager": [True],
    "engine.precision": ["bf16"],
    "resources.instances": [1, 2],
}
TRAIN = {"name": "chat", "train": {"model": {"name": "m"}, "data": {"source": "d"}, "batch": {"global": 16}}}


SCORE = {"name": "chat", "score": {"model": {"name": "m"}, "data": {"source": "d"}}}


def complaint(space: Any, tuned: dict[str, Any] = TRAIN, **tune: Any) -> str:
    tasks = [tuned, {"name": "search", "tune": {"task": "chat", "space": space, **tune}}]
    text = yaml.safe_dump({"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "j"}, "spec": {"tasks": tasks}})
    try:
        parse(text, "job.yaml")
    except BadInput as error:
        return error.cause
    return ""


@pytest.mark.parametrize("path", tunable("train"))
def test_every_setting_that_can_be_tuned_is_taken(path: str) -> None:
    assert complaint({path: GOOD[path]}) == ""


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"nonsense.field": [1]}, "space['nonsense.field']: cannot be tuned for the train task chat: tunable are strategy.zero"),
        ({"optimizer.learningRate": [1e-3]}, "cannot be tuned"),
        ({"strategy.zreo": [1]}, "did you mean strategy.zero?"),
        ({"tables.sharding": ["row"]}, "cannot be tuned for the train task chat"),
        ({"strategy.zero": [0, 7]}, "space['strategy.zero'][1]: 7: input should be 0, 1, 2 or 3"),
        ({"batch.micro": ["banana"]}, "space['batch.micro'][0]: 'banana'"),
        ({"strategy.precision": ["bf16", "fp8"]}, "space['strategy.precision'][1]: 'fp8'"),
        ({"strategy.recompute": ["perhaps"]}, "'perhaps'"),
        ({"resources.workers": [0]}, "space['resources.workers'][0]: 0"),
        ({"strategy.contextParallel": [0]}, "space['strategy.contextParallel'][0]: 0"),
        ({"strategy.shardWithin": ["rack"]}, "space['strategy.shardWithin'][0]: 'rack'"),
        ({"optimizer.name": ["adamw-4bit"]}, "space['optimizer.name'][0]: 'adamw-4bit'"),
        ({"strategy.zero": []}, "space['strategy.zero']: has no value"),
        ({"strategy.zero": [1, 1]}, "stands there twice"),
    ],
)
def test_what_cannot_be_tried_is_refused_with_the_file(space: dict[str, Any], words: str) -> None:
    assert words in complaint(space), complaint(space)


@pytest.mark.parametrize("path", tunable("score"))
def test_every_setting_of_engines_is_taken(path: str) -> None:
    assert complaint({path: GOOD[path]}, SCORE) == ""


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"engine.batch": [0]}, "space['engine.batch'][0]: 0"),
        ({"engine.memoryFraction": [0.9, 1.5]}, "space['engine.memoryFraction'][1]: 1.5"),
        ({"engine.stepTokens": ["many"]}, "'many'"),
        ({"engine.bacth": [8]}, "did you mean engine.batch?"),
        ({"generation.maxTokens": [8]}, "cannot be tuned for the score task chat"),
        ({"strategy.zero": [1]}, "cannot be tuned for the score task chat"),
        ({"resources.instances": [0]}, "space['resources.instances'][0]: 0"),
    ],
)
def test_what_engines_cannot_try_is_refused_with_the_file(space: dict[str, Any], words: str) -> None:
    assert words in complaint(space, SCORE), complaint(space, SCORE)


@pytest.mark.parametrize(
    ("score", "words"),
    [
        ({"model": None, "engine": {"endpoint": {"url": "https://api.example.com/v1", "model": "m"}}}, "whose rows an endpoint answers"),
        ({"data": {"lmEval": {"tasks": ["arc_easy"]}}}, "lm-evaluation-harness"),
    ],
)
def test_score_tasks_without_engines_or_rows_of_their_own_are_refused(score: dict[str, Any], words: str) -> None:
    body = {name: value for name, value in {**SCORE["score"], **score}.items() if value is not None}  # type: ignore[dict-item]
    assert words in complaint({}, {"name": "chat", "score": body})


def test_a_task_whose_plan_decides_the_rows_of_a_step_is_not_searched() -> None:
    train = {"model": {"name": "m"}, "data": {"source": "d"}, "batch": {"global": "auto"}}
    tasks = [{"name": "tune", "train": train}, {"name": "search", "tune": {"task": "tune"}}]
    with pytest.raises(ValueError, match=r"names the task tune, whose batch\.global is auto: trials are compared at one number of rows"):
        JobSpec.model_validate({"metadata": {"name": "j"}, "spec": {"tasks": tasks}})


def test_a_trial_is_counted_in_steps_or_in_rows() -> None:
    assert "stepsPerTrial has no meaning" not in complaint({}, stepsPerTrial=8)
    assert "has no meaning for the train task chat: set stepsPerTrial" in complaint({}, rowsPerTrial=8)
    assert "has no meaning for the score task chat: set rowsPerTrial" in complaint({}, SCORE, stepsPerTrial=8)
    assert complaint({}, SCORE, rowsPerTrial=8) == ""


SIZED = {**TRAIN, "resources": {"workers": 2}}
SERVED = {**SIZED, "train": {**TRAIN["train"], "data": {"source": "d", "service": {"minWorkers": 1, "maxWorkers": 2}}}}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("tuned", "space", "trials", "words"),
    [
        (SIZED, {}, 8, ""),
        (TRAIN, {}, 8, "tune.budget.atOnce: gangs at once are of one size: set resources.workers of the task chat to a number"),
        (SIZED, {"resources.workers": [1, 2]}, 8, "gangs at once are of one size: leave resources.workers out of the space"),
        (SIZED, {}, 7, "2 gangs have work for 8 trials and more: raise trials to 8, or lower atOnce"),
        (SERVED, {}, 8, "gangs at once would take rows from one data service"),
        (SCORE, {}, 8, "engines of the score task chat are tried one after the other: leave atOnce out"),
    ],
)
def test_gangs_at_once_need_a_size_and_enough_to_do(tuned: dict[str, Any], space: Any, trials: int, words: str) -> None:
    found = complaint(space, tuned, budget={"trials": trials, "atOnce": 2})
    assert words in found if words else not found, found
    assert "atOnce" not in complaint(space, tuned, budget={"trials": trials})


def test_values_that_only_another_setting_forbids_are_left_to_the_planner() -> None:
    offload = {**TRAIN, "train": {**TRAIN["train"], "strategy": {"zero": 0}}}  # type: ignore[dict-item]
    assert complaint({"strategy.offload.optimizer": ["none", "cpu"], "strategy.zero": [0, 2]}, offload) == ""


def test_the_table_names_each_setting_once_and_keeps_what_changes_the_learning_out_of_the_usual_space() -> None:
    assert set(GOOD) == set(SETTINGS)
    assert not {"strategy.precision", "optimizer.name", "optimizer.states", "data.pack"} & {*usually_searched("train")}
    assert {"strategy.contextParallel", "strategy.shardWithin"} <= {*usually_searched("train")}
