"""Hybrid sharding and compressed gradients in the planner: what they take, what they save, and when they are chosen."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.planning.setups import LLAMA_8B, setup

from tuneyard.api import TrainTask
from tuneyard.catalog import gpu
from tuneyard.planning import Plan, estimate_memory, estimate_speed, resolve
from tuneyard.planning.states import states_of

TWO_HOSTS: dict[str, Any] = {"workers": 16, "zero": 3, "gpus_per_node": 8, "grad_accum": 1}
SLOW, FAST = 0.5, 400.0
"""GB/s of a machine."""


def chosen(*, network_gb_s: float, workers: int = 16, rows: int = 64, **strategy: Any) -> Plan:
    fields = {"model": {"name": "m"}, "data": {"source": "d", "maxLength": 2048}, "batch": {"global": rows}}
    task = TrainTask.model_validate({**fields, "strategy": {"zero": 3, "shardWithin": "auto", **strategy}})
    return resolve(task, LLAMA_8B, gpu("h100-80gb"), workers, gpus_per_node=8, network_gb_s=network_gb_s)


def test_a_rank_holds_a_share_of_its_host_instead_of_a_share_of_all() -> None:
    over_all, inside = (states_of(setup(**TWO_HOSTS, shard_within=within), last_stage=True) for within in ("none", "host"))

    assert inside.weights == pytest.approx(2 * over_all.weights)
    assert inside.optimizer == pytest.approx(2 * over_all.optimizer)
    assert inside.gradients == pytest.approx(2 * over_all.gradients)


def test_gathers_stay_inside_the_host_and_gradients_cross_once() -> None:
    over_all, inside = (estimate_speed(setup(**TWO_HOSTS, shard_within=within, network_gb_s=SLOW)).terms for within in ("none", "host"))

    assert inside.gathers_s < 0.1 * over_all.gathers_s
    assert over_all.data_parallel_s == 0
    assert 0 < inside.data_parallel_s < 0.6 * over_all.gathers_s


@pytest.mark.parametrize("form", ["int8", "fp8"])
@pytest.mark.parametrize("layout", [{"zero": 3, "shard_within": "host"}, {"zero": 0}], ids=["hybrid", "replicas"])
def test_compressed_gradients_take_less_of_the_network_and_more_memory(form: str, layout: dict[str, Any]) -> None:
    plain, compressed = (setup(**{**TWO_HOSTS, **layout}, network_gb_s=SLOW, quantised_all_reduce=kind) for kind in ("none", form))

    assert estimate_speed(compressed).step_s < estimate_speed(plain).step_s
    assert estimate_memory(compressed).device.other_gb > estimate_memory(plain).device.other_gb


def test_bf16_states_halve_the_moments() -> None:
    from dataclasses import replace

    fp32 = setup(**TWO_HOSTS)
    bf16 = replace(fp32, optimizer_states="bf16")

    saved = states_of(fp32, last_stage=True).optimizer - states_of(bf16, last_stage=True).optimizer
    assert saved == pytest.approx(4 * LLAMA_8B.parameters / 16)
    assert estimate_speed(bf16).terms.optimizer_s < estimate_speed(fp32).terms.optimizer_s


def test_auto_shards_inside_hosts_where_the_network_is_slow_and_memory_allows_it() -> None:
    assert chosen(network_gb_s=SLOW).shard_within == "host"
    assert chosen(network_gb_s=FAST).shard_within == "none"
    assert chosen(network_gb_s=SLOW, workers=8).shard_within == "none"
    assert chosen(network_gb_s=SLOW, zero=1).shard_within == "none"


def test_compressed_gradients_are_planned_where_gradients_are_all_reduced() -> None:
    assert chosen(network_gb_s=SLOW, quantisedAllReduce="int8").shard_within == "host"
    assert chosen(network_gb_s=SLOW, zero="auto", shardWithin="host", quantisedAllReduce="int8").zero == 3


def test_one_host_and_uneven_ones_shard_over_all_ranks() -> None:
    """A scheduler does not promise whole hosts, and what it has placed must run."""
    for workers in (8, 12):
        plan = chosen(network_gb_s=SLOW, workers=workers, rows=48, shardWithin="host", quantisedAllReduce="int8")
        assert (plan.zero, plan.shard_within, plan.quantised_all_reduce) == (3, "none", "none")
