"""The plan of a ranker: its layout, and its parameters and memory by its description alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rankers import rank_task

from tuneyard.api import BadInput
from tuneyard.catalog import gpu
from tuneyard.planning import Plan, RankerShape, plan_of_ranker
from tuneyard.ranking import config_of_task
from tuneyard.ranking.config import INTERACTIONS

MODULES = st.lists(st.lists(st.sampled_from(INTERACTIONS), min_size=1, max_size=3), min_size=1, max_size=3)


def plan_of(workers: int = 2, sku: str = "cpu", **fields: Any) -> Plan:
    return plan_of_ranker(rank_task(**{"batch": {"global": 1024}, **fields}), gpu(sku), workers)


@settings(deadline=None, max_examples=25)
@given(MODULES, st.sampled_from([4, 7, 16, 24]), st.integers(1, 9), st.lists(st.integers(1, 40), max_size=2))
def test_parameters_are_those_of_the_ranker(layers: list[list[str]], width: int, outputs: int, hidden: list[int]) -> None:
    task = rank_task(model={"layers": layers, "width": width, "outputs": outputs, "hidden": hidden}, moreLabels=["bought"])
    shape = RankerShape.of(task)
    with torch.device("meta"):
        ranker = config_of_task(task).build()
    assert sum(parameter.numel() for parameter in ranker.parameters()) == shape.total.parameters + shape.table_elements


def test_auto_is_data_parallel_with_one_micro_batch() -> None:
    plan = plan_of()
    assert (plan.zero, plan.micro_batch, plan.grad_accum, plan.precision) == (0, 512, 1, "fp32")
    assert plan_of(sku="h100-80gb").precision == "bf16"
    assert plan_of(strategy={"offload": {"optimizer": "cpu"}}).zero == 2
    assert plan_of(strategy={"shardWithin": "host"}).zero == 3


def test_tables_are_shared_by_the_ranks_and_halved_by_fp16() -> None:
    features = {"sparse": [{"name": "item", "rows": 10_000_000}]}
    whole, shared = (plan_of(count, features=features, model={"width": 64}).memory for count in (1, 4))
    assert whole.weights_gb == pytest.approx(4 * shared.weights_gb, rel=0.01)
    half = plan_of(1, features=features, model={"width": 64}, tables={"rows": "fp16"}).memory
    assert half.weights_gb == pytest.approx(whole.weights_gb / 2, rel=0.02)
    assert plan_of(1, sku="h100-80gb", features=features, tables={"offload": "cpu"}).memory.weights_gb < 0.01


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"strategy": {"tensorParallel": 2}}, "not with sequenceParallel, contextParallel, tensorParallel"),
        ({"batch": {"global": 1023}}, "does not divide over 2 replicas"),
        ({"strategy": {"precision": "fp16"}, "sku": "h100-80gb"}, "not trained in fp16"),
        ({"strategy": {"shardWithin": "host", "zero": 1}}, "by ZeRO-3"),
    ],
)
def test_layouts_that_rankers_are_not_trained_in_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        plan_of(**fields)
