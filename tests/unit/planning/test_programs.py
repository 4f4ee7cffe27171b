"""The plan of a program: what the task asks for, and nothing predicted."""

from __future__ import annotations

from typing import Any

import pytest

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import gpu
from tuneyard.planning import Plan, plan_of_program


def plan_of(workers: int = 2, sku: str = "cpu", rows: int = 32, **strategy: Any) -> Plan:
    fields: dict[str, Any] = {"program": "line:Line", "data": {"source": "rows.jsonl"}, "batch": {"global": rows}, "strategy": strategy}
    return plan_of_program(TrainTask.model_validate(fields), gpu(sku), workers)


def test_auto_is_plain_data_parallelism_with_one_micro_batch() -> None:
    plan = plan_of()
    assert (plan.zero, plan.micro_batch, plan.grad_accum, plan.precision) == (0, 16, 1, "fp32")
    assert plan.memory.total_gb == 0
    assert plan.speed is None
    assert plan_of(sku="h100-80gb").precision == "bf16"


def test_an_offload_takes_the_lowest_stage_that_has_it() -> None:
    assert plan_of(offload={"optimizer": "cpu"}).zero == 2
    assert plan_of(offload={"parameters": "cpu"}).zero == 3


def test_hosts_are_replicas_that_shard_inside() -> None:
    plan = plan_of(4, shardWithin="host", quantisedAllReduce="int8")
    assert (plan.zero, plan.shard_within, plan.quantised_all_reduce) == (3, "host", "int8")


def test_ranks_of_a_tensor_group_share_their_rows() -> None:
    plan = plan_of(4, tensorParallel=2)
    assert (plan.tensor_parallel, plan.micro_batch, plan.global_batch) == (2, 16, 32)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rows": 30, "workers": 4}, "does not divide over 4 replicas"),
        ({"workers": 3, "tensorParallel": 2}, "no whole number of groups of 2"),
        ({"contextParallel": 2}, "not with sequenceParallel or contextParallel"),
        ({"shardWithin": "host", "zero": 2}, "shards by ZeRO-3"),
    ],
)
def test_what_cannot_be_laid_out_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        plan_of(**fields)
