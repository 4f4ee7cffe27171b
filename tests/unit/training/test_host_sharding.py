"""Hosts that cannot be replicas: a plan that shards inside hosts shards over all ranks there, and says why."""

from __future__ import annotations

import torch
from tests.builders.models import cpu_plan

from tuneyard.parallel import Mesh
from tuneyard.training.distributed import World
from tuneyard.training.host_sharding import on_hosts

ALONE = World(rank=0, size=1, local_rank=0, local_size=1, device=torch.device("cpu"), mesh=Mesh.over(1))


def test_one_host_is_told_and_shards_over_all_ranks() -> None:
    plan, warning = on_hosts(cpu_plan(zero=3, shard_within="host", quantised_all_reduce="int8"), ALONE)

    assert (plan.zero, plan.shard_within, plan.quantised_all_reduce) == (3, "none", "none")
    assert "all 1 ranks are on one host" in warning


def test_other_plans_stay_as_they_are() -> None:
    plan = cpu_plan(zero=3)

    assert on_hosts(plan, ALONE) == (plan, "")
