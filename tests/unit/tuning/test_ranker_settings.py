"""Which settings of a rank task a tuner may choose, which cannot matter, and what is expected of them before history knows any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from tests.builders.rankers import rank_task

from tuneyard.api import BadInput, JobSpec, Task
from tuneyard.api.tuned_settings import apply_settings, tunable
from tuneyard.catalog import gpu
from tuneyard.cli.tune import with_search
from tuneyard.planning import Plan, plan_of_ranker
from tuneyard.runtime.tune.trials import short
from tuneyard.tuning import (
    PlannedExpectation,
    PolicySearcher,
    Space,
    default_settings_of_ranker,
    refuse_without_effect,
)


def task_of(workers: int = 2, **fields: Any) -> Task:
    body = rank_task(**({"batch": {"global": 1024}} | fields)).model_dump(by_alias=True, exclude_unset=True)
    return Task.model_validate({"name": "ranker", "rank": body, "resources": {"workers": workers}})


def plan_of(task: Task) -> Plan:
    assert task.rank is not None
    return plan_of_ranker(task.rank, gpu("cpu"), 2)


def test_the_space_holds_nothing_that_changes_what_is_learned() -> None:
    found = default_settings_of_ranker(task_of(), workers=[2], is_cpu=True)
    assert found["batch.micro"] == (512, 256, 128, 64)
    assert found["tables.sharding"] == ("auto", "table", "row", "column")
    assert not {"tables.rows", "tables.exchange", "strategy.precision", "strategy.quantisedAllReduce"} & found.keys()
    on_gpus = default_settings_of_ranker(task_of(), workers=[1, 2], is_cpu=False)
    assert on_gpus["tables.offload"] == ("none", "cpu")
    assert on_gpus["resources.workers"] == (1, 2)
    dense = default_settings_of_ranker(task_of(features={"dense": ["number0"]}), workers=[2], is_cpu=False)
    assert not [name for name in dense if name.startswith("tables.")]
    assert default_settings_of_ranker(task_of(batch={"global": 3}), workers=[1], is_cpu=True)["batch.micro"] == (3, 1)


@pytest.mark.parametrize("path", tunable("rank"))
def test_every_setting_that_may_be_listed_is_a_field_of_the_task(path: str) -> None:
    values: dict[str, Any] = {
        "strategy.precision": "fp32",
        "strategy.shardWithin": "host",
        "strategy.quantisedAllReduce": "int8",
        "tables.sharding": "row",
        "tables.rows": "fp16",
        "tables.exchange": "int8",
        "optimizer.name": "adamw-8bit",
        "optimizer.states": "bf16",
    }
    value = values.get(path, "cpu" if "offload" in path else True if path == "strategy.recompute" else 2)
    found = apply_settings(task_of(strategy="auto"), {path: value}).to_yaml_dict()
    for part in path.split(".") if path == "resources.workers" else ["rank", *path.split(".")]:
        found = found[part]
    assert found == value


@pytest.mark.parametrize(
    ("space", "place", "said"),
    [
        ({"tables.sharding": ["row"]}, {"workers": 1}, "one worker keeps all tables"),
        ({"strategy.quantisedAllReduce": ["int8"]}, {"workers": 1}, "exchanges no gradients"),
        ({"tables.exchange": ["int8"]}, {"workers": 1}, "exchanges no embeddings"),
        ({"strategy.shardWithin": ["host"]}, {"workers": 2}, "all workers are on one machine"),
        ({"tables.offload": ["cpu"]}, {"workers": 2, "is_cpu": True}, "in the memory of the host"),
    ],
)
def test_settings_without_effect_are_refused(space: dict[str, Any], place: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        refuse_without_effect(task_of(), space, **({"hosts": 1, "is_cpu": False} | place))


def test_a_ranker_without_tables_has_no_settings_of_them_and_open_workers_make_sharding_matter() -> None:
    with pytest.raises(BadInput, match="the ranker has no tables"):
        refuse_without_effect(task_of(features={"dense": ["number0"]}), {"tables.rows": ["fp16"]}, workers=2, hosts=1, is_cpu=True)
    refuse_without_effect(task_of(), {"tables.sharding": ["row"], "resources.workers": [1, 2]}, workers=1, hosts=1, is_cpu=True)


def test_values_that_are_none_are_refused() -> None:
    with pytest.raises(BadInput, match=r"tables\.sharding"):
        apply_settings(task_of(), {"tables.sharding": "diagonal"})


def test_a_trial_holds_out_no_rows_and_stays_valid() -> None:
    fields = {"validationFraction": 0.5, "slices": ["device"], "epochs": 3.0, "evaluation": {"everySteps": 2, "earlyStop": 2}}
    cut = short(task_of(**fields), 8)
    again = apply_settings(cut, {"tables.sharding": "row"}).rank
    assert again is not None
    assert (again.steps, again.epochs, again.validation_fraction, again.slices) == (8, None, 0.0, [])


def test_a_search_starts_from_the_plan_and_learns_what_is_faster() -> None:
    task = task_of()
    space = Space({"batch.micro": (512, 256, 128), "tables.sharding": ("row", "column")})

    def planned(point: Any) -> float:
        speed = plan_of(apply_settings(task, point)).speed
        assert speed is not None
        return speed.tokens_per_s

    truth = {"row": 3.0, "column": 1.0}
    searcher = PolicySearcher(space, lambda points: PlannedExpectation(points, planned), np.random.default_rng(0))
    tried = []
    while asked := searcher.ask(1):
        (point,) = asked
        tried.append(point)
        searcher.tell(point, None if point == {"batch.micro": 128, "tables.sharding": "column"} else truth[str(point["tables.sharding"])])
    assert len(tried) == 6
    assert len({tuple(point.items()) for point in tried}) == 6


def test_points_like_a_fast_one_are_expected_to_be_fast() -> None:
    points: list[dict[str, Any]] = [{"a": one, "b": other} for one in (1, 2) for other in (1, 2, 3)]
    expected = PlannedExpectation(points, lambda _: None)
    expected.learn(points[0], 4.0)
    expected.learn(points[3], 1.0)
    expected.learn(points[5], None)
    expected.learn({"a": 7, "b": 7}, 3.0)
    found = expected.outlook()
    assert found.log_speed[1] > found.log_speed[4]
    assert found.fails[5] == 1.0
    assert found.sigma[0] < found.sigma[1]


def test_tune_finds_the_rank_task_of_a_job_and_refuses_what_trains_nothing() -> None:
    def job(*tasks: dict[str, Any]) -> JobSpec:
        head = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "clicks"}}
        return JobSpec.model_validate(head | {"spec": {"tasks": list(tasks)}})

    ranker = task_of().to_yaml_dict()
    found, name = with_search(job(ranker), trials=4, minutes=None, searcher=None)
    search = found.spec.task(name).tune
    assert search is not None
    assert search.task == "ranker"
    with pytest.raises(ValidationError, match="no train, rank or score task"):
        job({"name": "make", "process": {"command": ["true"]}}, {"name": "search", "tune": {"task": "make"}})
